"""Tables: Markdown, decimal commas, several lines of names, a column a run, histories."""

from tests.parity.readers.kinds.kind import Kind, lines

TABLES = {
    "Markdown": Kind(
        lines("| {s} | {x} | {r:.7f} |", "| step | loss | lr |\n|---:|---:|:--|\n"),
        has_rate=True,
        name="run.md",
    ),
    "Markdown without outer bars": Kind(
        lines("{s} | {x}", "Step | Training Loss\n--- | ---\n"), name="run.md"
    ),
    "Markdown below a heading": Kind(
        lines("| {s} | {x} |", "# Run 7\n\nThe loss of each step.\n\n| step | loss |\n|---|---|\n")
        + "\nThat is all.\n",
        name="run.md",
    ),
    "Markdown, a column a run": Kind(
        lines(
            "| {s} | {x} | {worse} | +0.1 |",
            "| step | bf16 | fp8 | delta |\n| ---: | ---: | ---: | ---: |\n",
        ),
        name="run.md",
        run=":bf16",
    ),
    "box of signs": Kind(
        lines("| {s:4d} | {x} |", "+------+--------+\n| step | loss   |\n+------+--------+\n")
        + "+------+--------+\n",
        name="run.txt",
    ),
    "drawn box": Kind(
        lines("│ {s:4d} │ {x} │", "┏━━━━━━┳━━━━━━━━┓\n┃ step ┃ loss   ┃\n┡━━━━━━╇━━━━━━━━┩\n")
        + "└──────┴────────┘\n",
        name="run.txt",
    ),
    "Step;Train Loss": Kind(
        lines("{s};{comma};{rate_comma}", "Step;Train Loss;LR\n"), name="run.csv", has_rate=True
    ),
    "decimal commas in quotes": Kind(lines('{s},"{comma}"', "step,loss\n"), name="run.csv"),
    "Training Loss": Kind(lines("{s}\t{x}", "Step\tTraining Loss\n"), name="run.tsv"),
    "comment lines": Kind(lines("{s},{x}", "# run 7\n# lr 0.001\nstep,loss\n"), name="run.csv"),
    "comment of names": Kind(lines("{s} {x}", "# step loss\n"), name="run.txt"),
    "two lines of names": Kind(
        lines("{s},{x},{r:.7f}", "step,train,train\n,loss,lr\n"), name="run.csv", has_rate=True
    ),
    "names and units": Kind(lines("{s},{x}", "step,loss\n[1],[nats]\n"), name="run.csv"),
    "sep=;": Kind(lines("{s};{x}", "sep=;\nstep;loss\n"), name="run.csv"),
    "W&B chart, a column a run": Kind(
        lines(
            '"{s}","{x}","{x}","{x}","{worse}","{x}","{x}"',
            '"Step","bf16 - train/loss","bf16 - train/loss__MIN","bf16 - train/loss__MAX",'
            '"fp8 - train/loss","fp8 - train/loss__MIN","fp8 - train/loss__MAX"\n',
        ),
        name="wandb.csv",
        run=":bf16",
    ),
    "W&B chart, grouped": Kind(
        lines(
            '"{s}","{x}","{x}","{x}"',
            '"trainer/global_step","Group: bf16 - train_loss","Group: bf16 - train_loss__MIN",'
            '"Group: bf16 - train_loss__MAX"\n',
        ),
        name="wandb.csv",
    ),
    "a column a run": Kind(
        lines("{s},{x},{worse}", "step,bf16,fp8\n"), name="runs.csv", run=":bf16"
    ),
    "Keras CSVLogger": Kind(lines("{s},{x},{worse}", "epoch,loss,val_loss\n"), name="history.csv"),
    "scikit-learn, verbose": Kind(lines("Iteration {s}, loss = {x:.8f}"), name="fit.log"),
    "notebook progress table": Kind(
        lines("{s}\t{x:.6f}\t{worse:.6f}", "Step\tTraining Loss\tValidation Loss\n"),
        name="run.txt",
    ),
    "blanks": Kind(lines("{s:>6}  {x}", "  step    loss\n"), name="run.txt"),
    "losses alone": Kind(lines("{x}"), name="loss.txt"),
    "one name": Kind(lines("{x}", "loss\n"), name="loss.csv"),
}
