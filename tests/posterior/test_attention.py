import pytest
import torch

from nogs.posterior import attention
from nogs.posterior.attention import attend, plan_rows

CPU = torch.device("cpu")
WIDTH, HEADS = 8, 2


def slow(queries, keys, values, seen, tokens, first):
    """Each row and head by itself, with the softmax written out."""
    rows = []
    for n in range(len(keys) // tokens):
        q = queries[n : n + 1] if first else queries[n * tokens : (n + 1) * tokens]
        k, v = keys[n * tokens : (n + 1) * tokens], values[n * tokens : (n + 1) * tokens]
        heads = []
        for h in range(HEADS):
            part = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            weights = (q[:, part] @ k[:, part].T / (WIDTH / HEADS) ** 0.5).exp() * seen[n]
            heads.append(weights / weights.sum(1, keepdim=True) @ v[:, part])
        rows.append(torch.cat(heads, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("tile", [1, 12, 40])
@pytest.mark.parametrize("first", [False, True])
def test_rows_that_share_a_tile_see_only_themselves(monkeypatch, tile, first):
    monkeypatch.setitem(attention.TILE, "cpu", tile)
    random = torch.Generator().manual_seed(0)
    plan, parts = [], []
    for rows, tokens in ((6, 1), (6, 4), (9, 5)):
        seen = torch.rand(rows, tokens, generator=random) < 0.7
        seen[:, 0] = True
        plan.append(plan_rows(rows, tokens, seen=seen, device=CPU))
        asked = rows if first else rows * tokens
        q, k, v = (torch.randn(n, WIDTH, generator=random) for n in (asked, rows * tokens, rows * tokens))
        parts.append((q, k, v, slow(q, k, v, seen, tokens, first)))
    assert plan[1].together == {1: 1, 12: 3, 40: 6}[tile]
    queries, keys, values, expected = (torch.cat(each) for each in zip(*parts))
    found = attend(queries, keys, values, plan, heads=HEADS, first=first)
    torch.testing.assert_close(found, expected)
