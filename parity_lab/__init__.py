"""What `why` and `heal` add to the core, as data (`parity.extensions`)."""

from parity.extensions import Lab

LAB = Lab(
    commands={
        "why": (
            "parity_lab.commands",
            "Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.",
        ),
        "heal": (
            "parity_lab.heal_command",
            "Find the latest step from which a safer recipe heals a candidate.",
        ),
    },
    documents={
        "ablations": ("why --ablation NAME",),
        "analysis": ("why",),
        "analysis-plan": ("why --plan",),
        "healing": ("heal",),
        "healing-plan": ("heal --plan",),
    },
    kinds={
        "why": "measured the parts of a gap",
        "heal": "went on from a checkpoint of another run with a safer recipe",
    },
    rules={
        "GET /api/v1/jobs/{job_id}/why": "read",
        "POST /api/v1/jobs/{job_id}/why": "submit",
        "POST /api/v1/jobs/{job_id}/why:plan": "read",
        "GET /api/v1/jobs/{job_id}/why/ablations": "read",
        "GET /api/v1/jobs/{job_id}/heal": "read",
        "POST /api/v1/jobs/{job_id}/heal": "submit",
        "POST /api/v1/jobs/{job_id}/heal:plan": "read",
    },
    parts={
        "tables": "parity_lab.server.tables",
        "kinds": "parity_lab.server.kinds",
        "web": "parity_lab.server.web",
        "measure": "parity_lab.training.measure",
    },
)
