"""Training steps of whole models in PyTorch, one contender of models.py.

The models are those of models/src: the same layers, widths, optimiser and number of words. A line of
the input is a number of steps; the answer is the seconds of each.
"""

import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

SIZES = {"lstm": (64, 24, 256, 2000), "transformer": (32, 24, 256, 8000)}


class Weights(nn.Module):
    """Scores to weights: softmax, 1.5-entmax, or entmax with an α of each head."""

    def __init__(self, mapping, heads=1):
        super().__init__()
        self.mapping = mapping
        self.raw = nn.Parameter(torch.zeros(heads, 1, 1)) if mapping == "learned" else None

    def forward(self, scores):
        if self.mapping == "softmax":
            return torch.softmax(scores, -1)
        import entmax

        if self.mapping == "entmax15":
            return entmax.entmax15(scores, -1)
        return entmax.entmax_bisect(scores, 1 + torch.sigmoid(self.raw), -1)


def loss_of(mapping):
    if mapping == "softmax":
        return nn.CrossEntropyLoss()
    import entmax

    return entmax.Entmax15Loss(reduction="elementwise_mean")


class Lstm(nn.Module):
    """An encoder and a decoder of one LSTM layer each, with global attention."""

    def __init__(self, mapping, time_steps, width, vocabulary):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.key = nn.Linear(width, width, bias=False)
        self.weights = Weights(mapping)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, source, before):
        memory, state = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(before), state)
        weights = self.weights(states @ self.key(memory).transpose(1, 2))
        context = weights @ memory
        return self.output(torch.tanh(self.combine(torch.cat([context, states], -1))))


class Attention(nn.Module):
    """Attention of several heads with any mapping; softmax goes through PyTorch's fused function."""

    def __init__(self, mapping, width, heads):
        super().__init__()
        self.heads, self.mapping = heads, mapping
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.weights = Weights(mapping, heads)

    def forward(self, x, memory, causal):
        q, k, v = (
            layer(of).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, of in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        if self.mapping == "softmax":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            if causal:
                later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(later, -1e9)
            mixed = self.weights(scores) @ v
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """A block of an encoder, or of a decoder if it has a memory; norms behind the sums."""

    def __init__(self, mapping, width, heads, crossed):
        super().__init__()
        self.own = Attention(mapping, width, heads)
        self.cross = Attention(mapping, width, heads) if crossed else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crossed else 2))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, memory=None):
        x = self.norms[0](x + self.own(x, x, memory is not None))
        if memory is not None:
            x = self.norms[1](x + self.cross(x, memory, False))
        return self.norms[-1](x + self.narrow(torch.relu(self.wide(x))))


class Transformer(nn.Module):
    """An encoder and a decoder of three blocks each."""

    def __init__(self, mapping, time_steps, width, vocabulary):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(1, time_steps, width))
        self.encoder = nn.ModuleList(Block(mapping, width, 4, False) for _ in range(3))
        self.decoder = nn.ModuleList(Block(mapping, width, 4, True) for _ in range(3))
        self.output = nn.Linear(width, vocabulary)

    def forward(self, source, before):
        memory = self.source(source) + self.places
        for block in self.encoder:
            memory = block(memory)
        x = self.target(before) + self.places
        for block in self.decoder:
            x = block(x, memory)
        return self.output(x)


def main(name, mapping, threads):
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    batch, steps, width, vocabulary = SIZES[name]
    model = {"lstm": Lstm, "transformer": Transformer}[name](mapping, steps, width, vocabulary)
    adam, loss_function = torch.optim.Adam(model.parameters(), fused=True), loss_of(mapping)
    for line in sys.stdin:
        seconds, loss = [], torch.tensor(float("nan"))
        for _ in range(int(line)):
            source, before, target = torch.randint(vocabulary, (3, batch, steps))
            start = time.perf_counter()
            loss = loss_function(model(source, before).flatten(0, 1), target.flatten())
            adam.zero_grad()
            loss.backward()
            adam.step()
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"seconds": seconds, "loss": loss.item(), "peak_kb": peak}), flush=True)


main(*sys.argv[1:])
