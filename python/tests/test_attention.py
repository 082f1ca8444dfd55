"""MultiheadAttention: torch's own when the mapping is softmax, and right when it is not."""

import itertools

import pytest

torch = pytest.importorskip("torch")
import parsimax.torch as pt  # noqa: E402


def pair(**options):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(8, 2, **options)
    ours = pt.MultiheadAttention(8, 2, **options, mapping="softmax")
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"kdim": 6, "vdim": 5}, {"add_bias_kv": True}, {"add_zero_attn": True, "add_bias_kv": True}]
)
def test_softmax_is_torchs(batch_first, bias, options):
    ours, theirs = pair(batch_first=batch_first, bias=bias, **options)
    shape = (3, 4) if batch_first else (4, 3)
    key_shape = (3, 5) if batch_first else (5, 3)
    query = torch.randn(*shape, 8)
    key, value = torch.randn(*key_shape, options.get("kdim", 8)), torch.randn(*key_shape, options.get("vdim", 8))
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    boolean = torch.rand(4, 5) < 0.3
    boolean[:, 0] = False
    masks = [None, boolean, torch.randn(4, 5), torch.randn(6, 4, 5)]
    floats = torch.zeros(3, 5).masked_fill(padding, -torch.inf)
    for mask, pad, average in itertools.product(masks, [None, padding, floats], [True, False]):
        if mask is not None and pad is not None and mask.dtype != pad.dtype:
            continue
        arguments = {"attn_mask": mask, "key_padding_mask": pad, "average_attn_weights": average}
        for a, b in zip(ours(query, key, value, **arguments), theirs(query, key, value, **arguments), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_unbatched_and_causal():
    ours, theirs = pair()
    x = torch.randn(4, 8)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4)
    for a, b in zip(
        ours(x, x, x, attn_mask=causal, is_causal=True), theirs(x, x, x, attn_mask=causal, is_causal=True), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert ours(x, x, x, need_weights=False)[1] is None


@pytest.mark.parametrize("mapping", ["sparsemax", "entmax15", "fusedmax", "adaptive", pt.Sparsemax()])
def test_other_mappings_learn_and_mask(mapping):
    torch.manual_seed(0)
    layer = pt.MultiheadAttention(8, 2, batch_first=True, mapping=mapping)
    layer.load_state_dict(torch.nn.MultiheadAttention(8, 2).state_dict())
    x = torch.randn(3, 4, 8, requires_grad=True)
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[0, 2:] = True
    padding[2] = True
    out, weights = layer(x, x, x, key_padding_mask=padding)
    assert (weights[0, :, 2:] == 0).all() and (weights[2] == 0).all()
    torch.testing.assert_close(weights[:2].sum(-1), torch.ones(2, 4))
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    saved = layer.state_dict()
    layer.load_state_dict(saved)
    if mapping == "adaptive":
        assert "mapping.a" in saved


def test_inside_torchs_encoder_layer():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    layer.self_attn = pt.MultiheadAttention(8, 2, batch_first=True, mapping="entmax15")
    for mode in (True, False):
        layer.train(mode)
        assert layer(torch.randn(2, 5, 8)).isfinite().all()
