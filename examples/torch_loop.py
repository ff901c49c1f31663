"""A training loop of PyTorch that logs to parity: the three lines with `parity` in them are all
that it takes.

    parity submit examples/external.yaml           # prints the job; `parity status JOB` lists its
      runs
    PARITY_RUN=r… python examples/torch_loop.py    # one for each run, with the recipe of its arm

A tensor on a GPU is read when it is logged, which waits for the GPU as `loss.item()` does.
"""

import torch

import parity

STEPS = 200


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    truth = torch.arange(8.0)

    with parity.Run() as run:
        for step in range(STEPS):
            x = torch.randn(64, 8)
            loss = torch.nn.functional.mse_loss(model(x)[:, 0], x @ truth)
            optimizer.zero_grad()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            run.log(step=step, loss=loss.detach(), grad_norm=grad_norm)


if __name__ == "__main__":
    main()
