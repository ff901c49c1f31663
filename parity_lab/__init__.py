"""What `why` adds to the core, as data (`parity.extensions`)."""

from parity.extensions import Lab

LAB = Lab(
    commands={
        "why": (
            "parity_lab.commands",
            "Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.",
        ),
    },
    kinds={"why": "measured the parts of a gap"},
    rules={
        "GET /api/v1/jobs/{job_id}/why": "read",
        "POST /api/v1/jobs/{job_id}/why": "submit",
        "POST /api/v1/jobs/{job_id}/why:plan": "read",
        "GET /api/v1/jobs/{job_id}/why/ablations": "read",
    },
    parts={
        "tables": "parity_lab.server.tables",
        "kinds": "parity_lab.server.kinds",
        "web": "parity_lab.server.web",
        "measure": "parity_lab.training.measure",
    },
)
