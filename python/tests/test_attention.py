"""MultiheadAttention: torch's own when the mapping is softmax, and right when it is not."""

import itertools

import pytest

torch = pytest.importorskip("torch")
import parsimax.torch as pt  # noqa: E402
from parsimax.torch import _tiles  # noqa: E402


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


MAPPINGS = ["softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "ev_softmax", "adaptive"]


@pytest.mark.parametrize("tile", [1, 7, 1 << 15])
@pytest.mark.parametrize("mapping", [*MAPPINGS, pt.EntmaxBisect(1.3), pt.Oscarmax(exact=False), pt.Fusedmax(0.2)])
@pytest.mark.parametrize(
    "options", [{}, {"kdim": 6, "vdim": 5, "bias": False}, {"add_zero_attn": True, "add_bias_kv": True}]
)
def test_without_a_gradient_it_goes_head_by_head(monkeypatch, options, mapping, tile):
    torch.manual_seed(1)
    layer = pt.MultiheadAttention(8, 2, **options, batch_first=True, mapping=mapping).eval()
    query, key = torch.randn(3, 4, 8), torch.randn(3, 5, options.get("kdim", 8))
    value = torch.randn(3, 5, options.get("vdim", 8))
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    boolean = torch.rand(4, 5) < 0.5
    boolean[2] = True
    masks = [None, boolean, torch.randn(4, 5), torch.rand(6, 4, 5) < 0.5, torch.randn(6, 4, 5)]
    monkeypatch.setattr(_tiles, "TILE", tile)
    ways = []
    attend = _tiles.attend
    monkeypatch.setattr(_tiles, "attend", lambda *arguments: ways.append(1) or attend(*arguments))
    for mask, pad in itertools.product(masks, [None, padding, torch.randn(3, 5)]):
        results = []
        for worth in (1 << 30, 0):
            monkeypatch.setattr(_tiles, "WORTH", worth)
            with torch.no_grad():
                out, weights = layer(query, key, value, attn_mask=mask, key_padding_mask=pad, need_weights=False)
            assert weights is None
            results.append(out)
        torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)
    assert len(ways) == len(masks) * 3


def test_other_ways_to_attend_are_left_alone(monkeypatch):
    monkeypatch.setattr(_tiles, "WORTH", 0)
    monkeypatch.setattr(_tiles, "attend", lambda *_: pytest.fail("not for this call"))
    x = torch.randn(2, 4, 8)
    layer = pt.MultiheadAttention(8, 2, batch_first=True)
    assert layer(x, x, x, need_weights=False)[0].requires_grad
    with torch.no_grad():
        assert layer(x, x, x)[1].shape == (2, 4, 4)
        pt.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)(x, x, x, need_weights=False)
        own = pt.MultiheadAttention(8, 2, batch_first=True, mapping=lambda z, mask: pt.sparsemax(z, mask=mask))
        own(x, x, x, need_weights=False)


def test_masks_must_fit():
    layer, x = pt.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)
    with pytest.raises(ValueError, match="attn_mask"):
        layer(x, x, x, attn_mask=torch.zeros(3, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match="attn_mask"):
        layer(x, x, x, attn_mask=torch.zeros(4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=torch.zeros(4, 2, dtype=torch.bool))
    with pytest.raises(TypeError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=[True])
