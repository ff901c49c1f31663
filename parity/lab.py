"""What `why` and `search` add to the core, as data (`parity.extensions`)."""

from parity.extensions import Lab

LAB = Lab(
    commands={
        "why": ("parity.cli.why", "Explain a gap: which layers, GEMMs and ingredients cause it, with intervals."),
        "search": ("parity.cli.search", "Search the fastest policy inside the margin: which GEMMs can stay in the candidate's recipe."),
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
        "tables": "server.database.lab_tables",
        "kinds": "server.lab_kinds",
        "web": "server.lab_web",
        "measure": "workers.analyses.measure",
    },
)
