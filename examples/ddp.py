"""Data-parallel training of a model with sparse attention, on any number of processes or machines.

    python examples/ddp.py                                      # one process
    torchrun --nproc-per-node 2 examples/ddp.py                 # two processes, gloo on the CPU
    torchrun --nnodes 4 --node-rank $RANK --nproc-per-node 8 \
        --rdzv-backend c10d --rdzv-endpoint $HOST:29500 examples/ddp.py --backend nccl

The layers of parsimax need nothing special: their parameters (the learned α of every head too) take
part in the all-reduce like any other. Every process sees its share of each batch; since shares are equal
in size, the averaged gradient is that of the whole batch, and so are the weights, up to rounding.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import parsimax.torch as parsimax


class Tagger(nn.Module):
    """Embeds tokens, lets them attend to each other with a learned sparsity per head, and tags them."""

    def __init__(self, vocabulary: int = 20, tags: int = 5, width: int = 16, heads: int = 4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.attention = parsimax.MultiheadAttention(width, heads, batch_first=True, mapping="adaptive")
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, tags)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.out(x)


def batch(step: int, size: int, length: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """The same data whatever the number of processes: tag = the token's successor, modulo the tags."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(20, (size, length), generator=generator)
    return tokens, tokens.roll(-1, dims=1) % 5


def main() -> None:
    parser = argparse.ArgumentParser(description="Data-parallel training with sparse attention.")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=16, help="of all processes together")
    parser.add_argument("--backend", default="gloo", help="gloo on CPUs, nccl on GPUs")
    parser.add_argument("--save", help="file for the weights")
    parser.add_argument("--double", action="store_true", help="train in double precision")
    args = parser.parse_args()

    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if args.batch_size % world:
        parser.error(f"--batch-size must be a multiple of the {world} processes")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if args.backend == "nccl" else "cpu"
    torch.manual_seed(0)
    model = Tagger().to(device, torch.float64 if args.double else torch.float32)
    if world > 1:
        dist.init_process_group(args.backend)
    trained = DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = parsimax.Entmax15Loss()
    share = args.batch_size // world
    for step in range(args.steps):
        tokens, tags = (t[rank * share : (rank + 1) * share].to(device) for t in batch(step, args.batch_size))
        loss = criterion(trained(tokens).flatten(0, 1), tags.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if rank == 0:
        alpha = ", ".join(f"{a:.3f}" for a in model.attention.mapping.alpha.tolist())
        print(f"{world} processes, {args.steps} steps: loss {loss.item():.4f}, alpha per head {alpha}")
        if args.save:
            torch.save(model.state_dict(), args.save)
    if world > 1:
        # Nobody leaves while others still have to save: a connection that is closed early may abort them.
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
