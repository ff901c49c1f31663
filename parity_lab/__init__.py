"""What `why` and `search` add to the core, as data (`parity.extensions`)."""

from parity.extensions import Lab

LAB = Lab(
    commands={
        "why": (
            "parity_lab.commands",
            "Explain a gap: which layers, GEMMs and ingredients cause it, with intervals.",
        ),
        "search": (
            "parity_lab.commands",
            (
                "Search the fastest precision assignment inside the margin: which GEMMs can stay "
                "in "
                "the candidate's recipe."
            ),
        ),
    },
    kinds={"why": "measured the parts of a gap", "pilot": "is a pilot of a search"},
    rules={
        "GET /api/v1/jobs/{job_id}/why": "read",
        "POST /api/v1/jobs/{job_id}/why": "submit",
        "POST /api/v1/jobs/{job_id}/why:plan": "read",
        "GET /api/v1/jobs/{job_id}/why/ablations": "read",
        "POST /api/v1/jobs/{job_id}/searches": "submit",
        "POST /api/v1/jobs/{job_id}/searches:plan": "read",
        "GET /api/v1/searches/{search_id}": "read",
        "POST /api/v1/searches/{search_id}:cancel": "own",
        "POST /api/v1/searches/{search_id}:resume": "own",
    },
    parts={
        "tables": "parity_lab.server.tables",
        "kinds": "parity_lab.server.record",
        "web": "parity_lab.server.web",
        "measure": "parity_lab.training.program",
    },
)
