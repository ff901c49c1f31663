"""Every table of the documentation and of the sources that is written from code, by its name."""

from collections.abc import Mapping

from tools.tables import (
    attacks,
    emulated_noise,
    job_file,
    json_schemas,
    pinned,
    plan,
    policy,
    public_verdicts,
    questions,
    reason_codes,
    recipes,
    refusals,
    rights,
    run_codes,
    settings,
    timetable,
)
from tools.tables.generated import GeneratedTable

TABLES: Mapping[str, GeneratedTable] = {
    table.name: table
    for table in (
        attacks.TABLE,
        emulated_noise.TABLE,
        job_file.TABLE,
        json_schemas.TABLE,
        pinned.TABLE,
        plan.TABLE,
        policy.TABLE,
        public_verdicts.TABLE,
        questions.TABLE,
        reason_codes.TABLE,
        recipes.TABLE,
        refusals.TABLE,
        rights.TABLE,
        run_codes.TABLE,
        settings.TABLE,
        timetable.TABLE,
    )
}
