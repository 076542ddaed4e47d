"""The floor of a target forward: the bytes that it must read, over the memory bandwidth."""

from __future__ import annotations

from profkit.quantity import Quantity
from profkit.run import Facts
from profkit.words import count

# Gate, up and down projections of an expert.
MATRICES_PER_EXPERT = 3


def expert_coverage(experts: int, per_token: int, tokens: int) -> float:
    """Expected number of distinct experts that ``tokens`` independent tokens use: E (1 - (1 - k/E)^n).

    Real routing is correlated, so this is an upper estimate.

    Raises:
        ValueError: ``per_token`` outside 1 .. ``experts``, or negative ``tokens``.
    """
    if not 1 <= per_token <= experts or tokens < 0:
        raise ValueError("a token uses between one and all experts, and tokens are not negative")
    return float(experts * (1.0 - (1.0 - per_token / experts) ** tokens))


def latent_kv_bytes_per_token(layers: int, latent: int, rope: int, element_bytes: float) -> float:
    """Bytes that one GPU reads per cached token with multi-head latent attention: layers x (latent + rope) elements;
    every rank holds all of it."""
    return layers * (latent + rope) * element_bytes


def grouped_kv_bytes_per_token(layers: int, kv_heads: int, head_size: int, element_bytes: float, tp: int) -> float:
    """Bytes that one GPU reads per cached token with grouped-query attention: keys and values of its own heads, at
    least one."""
    return 2 * layers * max(kv_heads / tp, 1.0) * head_size * element_bytes


def kv_bytes_per_token(facts: Facts) -> float | None:
    """Bytes that one GPU reads per cached token, all layers: as stated, else from the shapes of the model's
    ``config.json`` and the type of the cache; ``None`` where something of that is not known."""
    stated = facts.number("model.kv_bytes_per_token")
    if stated is not None:
        return stated
    layers, kind = facts.integer("model.layers"), facts.text("server_args.kv_cache_dtype") or ""
    element = 1.0 if kind.startswith("fp8") else facts.number("model.activation_bytes") if kind == "auto" else None
    if layers is None or element is None:
        return None
    latent, rope = facts.integer("model.kv_latent_size"), facts.integer("model.kv_rope_size")
    if latent is not None and rope is not None:
        return latent_kv_bytes_per_token(layers, latent, rope, element)
    heads, size, tp = (facts.integer(key) for key in ("model.kv_heads", "model.head_size", "parallel.tp"))
    # Under DP attention a GPU holds all heads of fewer requests.
    if heads is None or size is None or tp is None or facts.flag("parallel.dp_attention"):
        return None
    return grouped_kv_bytes_per_token(layers, heads, size, element, tp)


def forward_floor(facts: Facts, rows: int, kv_tokens: float | None = None) -> Quantity:
    """Least time of one target forward over ``rows`` tokens, in milliseconds, all ranks together.

    (weights read by every token + covered experts) / (GPUs x bandwidth), plus the cache's reads: ``kv_tokens``
    (context of all running requests) x :func:`kv_bytes_per_token` / bandwidth, where both are known.
    Abstains when another fact is missing.
    """
    needed = ("model.dense_weight_bytes", "gpu.memory_bandwidth_gb_s")
    missing = [key for key in needed if facts.number(key) is None]
    gpus = facts.number("gpu.count") or facts.number("parallel.tp")
    if gpus is None:
        missing.append("gpu.count")
    if missing:
        return Quantity.unknown("ms", f"the run does not state {', '.join(missing)} (run.toml)")
    dense, bandwidth = (facts.number(key) for key in needed)
    assert dense is not None
    assert bandwidth is not None
    assert gpus is not None
    read = dense
    if experts := facts.integer("model.experts"):
        shape = {
            key: facts.number(f"model.{key}")
            for key in ("experts_per_token", "moe_layers", "hidden_size", "expert_intermediate_size", "weight_bytes")
        }
        absent = [f"model.{key}" for key, value in shape.items() if value is None]
        if absent:
            return Quantity.unknown("ms", f"the run does not state {', '.join(absent)} (run.toml)")
        known = {key: value for key, value in shape.items() if value is not None}
        expert = MATRICES_PER_EXPERT * known["hidden_size"] * known["expert_intermediate_size"] * known["weight_bytes"]
        read += known["moe_layers"] * expert_coverage(experts, int(known["experts_per_token"]), rows) * expert
    floor = read / (gpus * bandwidth * 1e9) * 1e3
    kv_bytes = kv_bytes_per_token(facts)
    cached = "KV reads left out"
    if kv_bytes is not None and kv_tokens is not None:
        floor += kv_bytes * kv_tokens / (bandwidth * 1e9) * 1e3
        cached = f"{kv_bytes * kv_tokens / 1e9:.2f} GB of KV cache per GPU"
    text = f"{read / 1e9:.1f} GB of weights for {count(rows, 'row')} over {gpus:g} x {bandwidth:g} GB/s, {cached}"
    return Quantity(floor, "ms", "modelled", text)
