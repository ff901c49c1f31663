"""The runs that a call of `compare` names, read as the case that the judge gets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parity.cli.compare.comparisons import ComparisonRequest, Evidence
from parity.cli.compare.evaluations import (
    NOT_BY_SIZE,
    holds_held_out_losses,
    judge_evaluations,
    refuse_evaluation_options,
)
from parity.cli.compare.typed_numbers import NEEDS_NUMBERS, NEEDS_RUNS, number_arms, typed_numbers
from parity.cli.inputs.arm_options import ArmOptions
from parity.cli.inputs.arms import SHORT_RERUN, read_arms, read_layer_tables, read_short_reruns
from parity.cli.inputs.columns import ColumnNames, stated_columns
from parity.cli.inputs.families import stated_families
from parity.cli.inputs.pairs import pairs
from parity.cli.inputs.policy import load_policy
from parity.cli.inputs.statements import stated_facts
from parity.cli.inputs.table_arms import NEEDS_ARM_BY, NO_COLUMN, read_table_arms
from parity.cli.terminal.options import refuse
from parity.comparing.arms import Arm, check_parameters, stated_arms
from parity.comparing.case import check_arm, complete_case
from parity.comparing.loss_unit import BITS, case_in_nats, runs_in_nats, unit_of_policy
from parity.comparing.noise_tables import check_families, read_rerun_table
from parity.comparing.statements import HELD_OUT, check_noise_table, check_plan, stated_multiplicity
from parity.frozen import frozen
from parity.judging.case import Case
from parity.judging.curves.curve import Curve
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.gap import PRINTED_STEP
from parity.judging.policy import Policy
from parity.judging.verdict.layer_statistics import LayerColumns, late_statistics
from parity.readers import read_run
from parity.readers.secondary.accuracy import read_accuracy

JudgedEvaluations = tuple[EvaluationCase, list[EvaluationDocument]]
"""A comparison of held-out losses with its verdicts."""


@frozen(eq=False)
class CurveComparison:
    """The case of a comparison of training curves, and the statistics by layer and step of its
    candidates.
    """

    case: Case
    layers: Mapping[str, LayerColumns]


def read_comparison(request: ComparisonRequest) -> CurveComparison | list[JudgedEvaluations]:
    """The case of one comparison of training curves, or the judged comparisons of held-out losses,
    one per size. Raises UsageError, InputError, ReadError and what options raise.
    """
    stated, table, evidence = request.stated, request.table, request.evidence
    runs, look = request.runs, request.look
    check_plan(stated.planned_steps, "--planned-steps", stated.assume_complete, "--assume-complete")
    policy = load_policy(
        replace(
            request.policy_options,
            schedule=stated.schedule,
            start=stated.start,
            pairing=stated.pairing,
            loss_unit=unit_of_policy(stated.loss_unit),
        )
    )
    parameters = check_parameters(stated.parameters, "--parameters")
    facts = stated_facts(stated)
    columns = replace(
        stated_columns(stated.column, stated.pattern), is_held_out=stated.loss_is == HELD_OUT
    )
    short_reruns: dict[str, list[Curve]] = {}
    numbers = typed_numbers(runs) if table.arm_by is None else None
    if numbers is not None:
        refuse(stated.given("baseline_run", "candidate_run", "seeds", "context"), NEEDS_RUNS)
        refuse(
            table.given() | stated.given("column", "pattern", "planned_steps", "start", "pairing"),
            NEEDS_RUNS,
        )
        comparisons = [number_arms(numbers, stated.tokens, facts)]
        table = replace(table, tokens_per_step=None if stated.tokens is None else 1.0)
        held_out = True
    elif table.arm_by is None:
        refuse(stated.given("tokens"), NEEDS_NUMBERS)
        refuse(table.given(), NEEDS_ARM_BY)
        comparisons = [read_arms(runs, stated, columns, facts)]
        held_out = holds_held_out_losses(stated.loss_is, columns.losses())
        if not held_out:
            short_reruns = read_short_reruns(stated.short_rerun, comparisons[0], columns, facts)
    else:
        refuse(stated.given("tokens"), NEEDS_NUMBERS)
        file_options = stated.given(
            "baseline_run", "candidate_run", "control", "short_rerun", "shorter_baseline"
        )
        refuse(file_options, "names a file, but with --arm-by all runs are in one table; remove it")
        refuse(stated.given("column", "pattern"), NO_COLUMN)
        refuse(
            stated.given("seeds"),
            "is not used with --arm-by; name the column of the seed with --pair-by",
        )
        if table.size_by is not None:
            refuse(
                stated.given("planned_steps") | table.given("at", "target", "times"), NOT_BY_SIZE
            )
        comparisons = read_table_arms(runs, table, facts)
        are_final = any(
            PRINTED_STEP in run.columns
            for arms in comparisons
            for _, runs_of_arm in arms
            for run in runs_of_arm
        )
        held_out = (
            table.size_by is not None
            or are_final
            or holds_held_out_losses(stated.loss_is, {table.loss})
        )
        if not held_out:
            refuse_evaluation_options(table)
    comparisons = [
        stated_arms(arms, parameters, "--parameters", stated.loss_is) for arms in comparisons
    ]
    if stated.loss_unit == BITS:
        refuse(table.given("target"), "is a loss in nats; remove it, or convert the table")
    if held_out:
        return _judged_evaluations(replace(request, table=table), comparisons, policy)
    candidates = [arm for arm, _ in comparisons[0][1:]]
    layers = read_layer_tables(evidence.layer_snr, candidates)
    case = _case(comparisons[0], short_reruns, columns, policy, stated, evidence, layers, look)
    if stated.loss_unit == BITS:
        case = case_in_nats(case)
    return CurveComparison(case=case, layers=layers)


def _judged_evaluations(
    request: ComparisonRequest, comparisons: Sequence[Sequence[Arm]], policy: Policy
) -> list[JudgedEvaluations]:
    """Judge arms of held-out losses, one comparison per size."""
    stated, table = request.stated, request.table
    typed_options = request.policy_options.given("checks", "accuracy_margin") | stated.given(
        "assume_complete", "layer_policy"
    )
    typed_options |= request.evidence.given(
        "evaluation", "layer_snr", "family", "noise_table", "full_run_hours", "hour_price"
    )
    typed_options |= stated.given("control", "short_rerun")
    refuse(typed_options, "needs training curves; of held-out losses only the losses are compared")
    if stated.loss_unit == BITS:
        comparisons = [[(arm, runs_in_nats(runs)) for arm, runs in arms] for arms in comparisons]
    paired = stated.seeds is not None or table.pair_by is not None
    return [
        judge_evaluations(arms, table, policy, stated.planned_steps, request.look, paired=paired)
        for arms in comparisons
    ]


def _case(
    arms: Sequence[Arm],
    short_reruns: Mapping[str, list[Curve]],
    columns: ColumnNames,
    policy: Policy,
    stated: ArmOptions,
    evidence: Evidence,
    layers: Mapping[str, LayerColumns],
    look: int,
) -> Case:
    """The comparison of training curves, with what further files hold."""
    multiplicity = stated_multiplicity(look, "--look", policy.looks, len(arms) - 1)
    controls = [read_run(file, columns=columns.of_run("", file)) for file in stated.control]
    names = [name for name, _ in arms]
    evaluation_files = pairs(evidence.evaluation, "--evaluation", "NAME=FILE")
    for arm in evaluation_files:
        check_arm(arm, names, "--evaluation")
    check_noise_table(evidence.noise_table, "--noise-table", evidence.family, "--family")
    families = stated_families(evidence.family, names)
    noise_table = read_rerun_table(evidence.noise_table) if families else None
    if noise_table is not None:
        check_families(families, noise_table, "--family", evidence.noise_table)
    (baseline_name, baseline), *others = arms
    case = Case(
        baseline=baseline,
        candidates=dict(others),
        policy=policy,
        baseline_name=baseline_name,
        controls=controls,
        shorter=[
            read_run(file, columns=columns.of_run("", file)) for file in stated.shorter_baseline
        ],
        short_reruns=short_reruns,
        planned_steps=stated.planned_steps,
        assume_complete=stated.assume_complete,
        layer_policy=stated.layer_policy,
        layer_snr_db={arm: late_statistics(table) for arm, table in layers.items()},
        evaluations={arm: read_accuracy(file) for arm, file in evaluation_files.items()},
        noise_table=noise_table,
        families=families,
        multiplicity=multiplicity,
    )
    return complete_case(case, step_option="--column step=NAME", noise_option=SHORT_RERUN)
