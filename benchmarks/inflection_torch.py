"""Inflection in PyTorch with the entmax package, one contender of inflection.py.

The model is that of crates/parsimax-models/src/seq2seq, weight by weight: a bidirectional LSTM over the source, a
decoder of LSTM cells with input feeding and global attention, any mapping for attention and output. It starts from the
weights that ours start from, reads the same batches, and its loss is compared with ours before anything is timed.
"""

import json
import pathlib
import sys
import time

import entmax
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, BEGIN, END = 0, 2, 3
WEIGHTS = {"softmax": torch.softmax, "entmax15": entmax.entmax15, "sparsemax": entmax.sparsemax}
LOSSES = {"entmax15": entmax.Entmax15Loss, "sparsemax": entmax.SparsemaxLoss}


class Encoder(nn.Module):
    """Bidirectional LSTM layers; the final states of both directions side by side begin the decoder."""

    def __init__(self, symbols, size, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(symbols, size, padding_idx=PAD)
        self.rnn = nn.LSTM(size, size // 2, layers, bidirectional=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source, lengths):
        embedded = self.dropout(self.embedding(source))
        if int(lengths[-1]) == len(source):
            # Nothing is padded: the fused layer.
            states, final = self.rnn(embedded)
        else:
            packed, final = self.rnn(pack_padded_sequence(embedded, lengths))
            states, _ = pad_packed_sequence(packed)
        return states.transpose(0, 1), [torch.cat([s[0::2], s[1::2]], -1).unbind(0) for s in final]


class Attention(nn.Module):
    """Global attention: ⟨W h, s⟩ through a mapping, then tanh of what is attended to and asks."""

    def __init__(self, size, mapping):
        super().__init__()
        self.linear_in = nn.Linear(size, size, bias=False)
        self.linear_out = nn.Linear(2 * size, size, bias=False)
        self.mapping = WEIGHTS[mapping]

    def keys(self, states):
        """W goes to the states, once for all steps."""
        return states @ self.linear_in.weight

    def forward(self, query, keys, states, hidden_places):
        scores = torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
        if hidden_places is not None:
            scores = scores.masked_fill(hidden_places, float("-inf"))
        weights = self.mapping(scores, -1)
        context = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
        return torch.tanh(self.linear_out(torch.cat([context, query], 1)))


class Cells(nn.Module):
    """One LSTM cell a layer, dropout between them; weights have the names of `nn.LSTM`."""

    def __init__(self, sizes, size, dropout):
        super().__init__()
        for layer, width in enumerate(sizes):
            self.register_parameter(f"weight_ih_l{layer}", nn.Parameter(torch.empty(4 * size, width)))
            self.register_parameter(f"weight_hh_l{layer}", nn.Parameter(torch.empty(4 * size, size)))
            self.register_parameter(f"bias_ih_l{layer}", nn.Parameter(torch.empty(4 * size)))
            self.register_parameter(f"bias_hh_l{layer}", nn.Parameter(torch.empty(4 * size)))
        self.count, self.dropout = len(sizes), dropout

    def forward(self, x, state):
        weights = [
            [getattr(self, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            for layer in range(self.count)
        ]
        hidden, cells = [], []
        for layer in range(self.count):
            if layer > 0:
                x = functional.dropout(x, self.dropout, self.training)
            # What nn.LSTMCell calls.
            x, c = torch.lstm_cell(x, (state[0][layer], state[1][layer]), *weights[layer])
            hidden.append(x)
            cells.append(c)
        return x, (hidden, cells)


class Decoder(nn.Module):
    def __init__(self, symbols, size, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(symbols, size, padding_idx=PAD)
        self.rnn = Cells([2 * size] + [size] * (layers - 1), size, dropout)


class Inflection(nn.Module):
    def __init__(self, sizes, attention, output):
        super().__init__()
        symbols, size, layers, dropout = sizes["symbols"], sizes["size"], sizes["layers"], sizes["dropout"]
        self.encoder = Encoder(symbols[0], size, layers, dropout)
        self.decoder = Decoder(symbols[1], size, layers, dropout)
        self.attention = Attention(size, attention)
        self.output = nn.Linear(size, symbols[1])
        self.dropout = nn.Dropout(dropout)
        self.mapping = WEIGHTS[output]
        if output == "softmax":
            self.loss_of = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")
        else:
            self.loss_of = LOSSES[output](ignore_index=PAD, reduction="sum")

    def encode(self, source, lengths):
        states, final = self.encoder(source, lengths)
        is_padded = int(lengths[-1]) < len(source)
        hidden_places = torch.arange(len(source)) >= lengths.unsqueeze(1) if is_padded else None
        return (self.attention.keys(states), states, hidden_places), final

    def loss(self, batch):
        """The loss of a batch, summed over symbols."""
        source, lengths, before, answers = batch
        memory, state = self.encode(source, lengths)
        embedded = self.dropout(self.decoder.embedding(before))
        feed, fed = torch.zeros_like(embedded[0]), []
        for e in embedded.unbind(0):
            top, state = self.decoder.rnn(torch.cat([e, feed], 1), state)
            feed = self.dropout(self.attention(top, *memory))
            fed.append(feed)
        scores = self.output(torch.stack(fed)).flatten(0, 1)
        return self.loss_of(scores, answers.flatten())

    @torch.inference_mode()
    def beam(self, source, lengths, width, longest=100):
        """The best hypotheses of each word: (log-probability, symbols), best first.

        A beam holds open and finished hypotheses. Only open ones go through the network, those of all words together.
        """
        words = len(lengths)
        memory, (hidden, cells) = self.encode(source, lengths)
        layers = len(hidden)
        states = torch.stack([*hidden, *cells, torch.zeros_like(hidden[0])])
        scores = torch.full((words, width), -torch.inf)
        scores[:, 0] = 0
        is_open = scores == 0
        last = torch.full((words, width), BEGIN)
        history = torch.full((words, width, longest + 1), END)
        # Of each place in the beam: its row among the states.
        rows = torch.arange(words).unsqueeze(1).expand(words, width)
        symbols = self.output.out_features
        for step in range(longest + 1):
            at = is_open.flatten().nonzero().squeeze(1)
            if len(at) == 0:
                break
            of = at // width
            state = states[:, rows.flatten()[at]]
            e = self.decoder.embedding(last.flatten()[at])
            top, (hidden, cells) = self.decoder.rnn(torch.cat([e, state[-1]], 1), (state[:layers], state[layers:-1]))
            feed = self.attention(top, *(None if part is None else part[of] for part in memory))
            states = torch.stack([*hidden, *cells, feed])
            steps = self.mapping(self.output(feed), -1).log()
            if step == longest:
                is_end = torch.arange(symbols) == END
                steps = steps.masked_fill(~is_end, -torch.inf)
            # A finished hypothesis stays as it is.
            totals = torch.full((words * width, symbols), -torch.inf)
            totals[:, END] = torch.where(is_open, -torch.inf, scores).flatten()
            totals[at] = scores.flatten()[at].unsqueeze(1) + steps
            scores, best = totals.view(words, -1).topk(width)
            parent, last = best // symbols, best % symbols
            parent_row = torch.full((words * width,), 0)
            parent_row[at] = torch.arange(len(at))
            was_open = is_open.gather(1, parent)
            rows = parent_row.view(words, width).gather(1, parent)
            history = history.gather(1, parent.unsqueeze(2).expand_as(history))
            history[:, :, step] = last
            is_open = was_open & (last != END) & (scores > -torch.inf)
        return scores, history


def tensors(pairs):
    """A batch, longest source first, time by time."""
    pairs = sorted(pairs, key=lambda pair: -len(pair[0]))
    pad = lambda rows: nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], padding_value=PAD)  # noqa: E731
    source, target = pad([s for s, _ in pairs]), pad([[BEGIN, *t, END] for _, t in pairs])
    # An end is read where a shorter word has one; its answer is padding.
    return source, torch.tensor([len(s) for s, _ in pairs]), target[:-1], target[1:].contiguous()


def read(path):
    """Tensors of a safetensors file: the length of a JSON header, the header, the bytes."""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    start = 8 + length
    for name, it in header.items():
        if name != "__metadata__":
            first, end = it["data_offsets"]
            values = torch.frombuffer(data, dtype=torch.float32, offset=start + first, count=(end - first) // 4)
            yield name, values.clone().view(it["shape"])


class Contender:
    def __init__(self, folder, attention, output, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.data = json.loads((folder / "data.json").read_text())
        self.model = Inflection(self.data["sizes"], attention, output)
        weights = dict(read(folder / "best.safetensors"))
        own = self.model.state_dict()
        self.model.load_state_dict({name: weights[name].view_as(own[name]) for name in own})
        self.adam = torch.optim.Adam(self.model.parameters(), 1e-3, fused=True)
        self.batches = [(tensors(pairs), sum(len(t) + 1 for _, t in pairs)) for pairs in self.data["batches"]]
        self.at = 0

    def loss(self):
        """The first batch's loss without dropout, a symbol."""
        self.model.eval()
        batch, symbols = self.batches[0]
        with torch.inference_mode():
            return {"loss": self.model.loss(batch).item() / symbols}

    def train(self, steps):
        self.model.train()
        seconds, counts = [], []
        for _ in range(steps):
            batch, symbols = self.batches[self.at % len(self.batches)]
            self.at += 1
            start = time.perf_counter()
            self.adam.zero_grad()
            (self.model.loss(batch) / symbols).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.adam.step()
            seconds.append(time.perf_counter() - start)
            counts.append(symbols)
        return {"seconds": seconds, "counts": counts}

    def decode(self, words, batch):
        self.model.eval()
        seconds, counts, right = [], [], 0
        for first in range(0, words, batch):
            part = self.data["words"][first : first + batch]
            order = sorted(range(len(part)), key=lambda i: -len(part[i][0]))
            start = time.perf_counter()
            source = nn.utils.rnn.pad_sequence([torch.tensor(part[i][0]) for i in order], padding_value=PAD)
            _, history = self.model.beam(source, torch.tensor([len(part[i][0]) for i in order]), 5)
            found = history[:, 0].tolist()
            seconds.append(time.perf_counter() - start)
            counts.append(len(part))
            right += sum([*f, END][: [*f, END].index(END)] == part[i][1] for f, i in zip(found, order))
        return {"seconds": seconds, "counts": counts, "right": right}


def main(folder, attention, output, threads):
    contender = Contender(pathlib.Path(folder), attention, output, int(threads))
    for line in sys.stdin:
        name, *numbers = line.split()
        print(json.dumps(getattr(contender, name)(*map(int, numbers))), flush=True)


main(*sys.argv[1:])
