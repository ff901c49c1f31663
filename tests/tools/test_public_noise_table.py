import pytest

from parity.judging.noise.noise_table import read_noise_table
from parity.judging.noise.public_table import PUBLIC, public_noise_table
from tools.public_noise_table import public_csv

HEAD = "group,runs,steps,mean_loss_nats,sd_nats,corr_with_final_at_25,corr_50,corr_75,corr_90\n"
ROWS = (
    "track3/20260430_adamh,5,4875,3.274138,0.0015884,,,,",
    "records/short,75,1480,3.2784,0.002,,,,",
    "records/short,40,1480,3.2785,0.003,,,,",
)

OTHERS_HEAD = "family,params_millions,tokens_millions,precision,varies,group,runs,mean_loss,sd,unit,source,licence\n"  # noqa: E501


@pytest.mark.parametrize(
    ("precision", "rounding"),
    [
        ("FP8 (hybrid, delayed; AMD)", "nearest"),
        ("NVFP4 (config)", "stochastic"),
        ("FP8 or NVFP4 (not resolved)", None),
        ("INT8/BF16", None),
    ],
)
def test_how_other_families_round_follows_from_their_precision(
    precision: str, rounding: str | None
) -> None:
    row = f'Llama3.1-8B-x,8030,1409,"{precision}",seed,g,10,3.29,0.005,nats,here,Apache-2.0\n'
    (group,) = (
        read_noise_table(public_csv(HEAD + ROWS[0], OTHERS_HEAD + row))
        .families["Llama3.1-8B-x"]
        .groups
    )
    assert (group.rounding, group.start, group.schedule) == (rounding, "scratch", "decaying")


def test_each_set_is_a_family_and_names_that_repeat_get_a_number() -> None:
    families = read_noise_table(public_csv(HEAD + "\n".join(ROWS), OTHERS_HEAD)).families
    assert {
        name: [group.group for group in family.groups] for name, family in families.items()
    } == {
        "modded-nanogpt-124M/records": ["short/001", "short/002"],
        "modded-nanogpt-124M/track3": ["20260430_adamh"],
    }


def test_the_shipped_table_is_in_its_documented_shape() -> None:
    assert public_noise_table().csv() == PUBLIC.read_text(encoding="utf-8")
