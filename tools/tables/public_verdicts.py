"""The gallery of public verdicts: examples/public judged, in docs/public-verdicts.md, README.md,
two pictures and the packaged page of the server.
"""

from tools.public_verdicts.claims import claim_table
from tools.public_verdicts.ladders import ladder_table
from tools.public_verdicts.page import sections, table
from tools.public_verdicts.pictures import ladder_plot, plot
from tools.public_verdicts.readme import first_lines
from tools.public_verdicts.server_page import packaged
from tools.public_verdicts.systems import interval_table
from tools.tables.generated import DOCS, ROOT, GeneratedTable

TABLE = GeneratedTable(
    name="public_verdicts",
    parts={
        DOCS / "public-verdicts.md": {
            "table": table,
            "ladders": ladder_table,
            "claims": claim_table,
            "sets": sections,
            "intervals": interval_table,
        },
        ROOT / "README.md": {"first example": first_lines},
    },
    files={
        DOCS / "images" / "public-verdicts.svg": plot,
        DOCS / "images" / "public-ladders.svg": ladder_plot,
        ROOT / "server" / "pages" / "public.json": packaged,
    },
)
