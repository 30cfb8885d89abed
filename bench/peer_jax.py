"""Times a JAX training step (jitted, buffers donated) of a model without convolutions; one JSON line.

    peer_jax.py linear|mlp|mlp_ln [--seconds 10]

fp32 only; the same layers, batch and optimizer as models.py.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from timing import report


def dense(rng, n_in, n_out):
    bound = n_in**-0.5
    return {"w": jnp.asarray(rng.uniform(-bound, bound, (n_in, n_out)), jnp.float32), "b": jnp.zeros(n_out)}


def linear(p, x):
    return x @ p["w"] + p["b"]


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def mlp(p, x):
    for layer in p[:-1]:
        x = jax.nn.relu(linear(layer, x))
    return linear(p[-1], x)


def mlp_ln(p, x):
    gelu = lambda y: jax.nn.gelu(y, approximate=False)
    x = gelu(layer_norm(p["norm1"], linear(p["fc1"], x)))
    return linear(p["fc3"], x + gelu(layer_norm(p["norm2"], linear(p["fc2"], x))))


def make(name, rng):
    """(parameters, forward, optimizer, input shape, classes or None)"""
    if name == "linear":
        return dense(rng, 10, 1), linear, optax.adam(1e-3), (32, 10), None
    if name == "mlp":
        return [dense(rng, *s) for s in ((784, 512), (512, 256), (256, 10))], mlp, optax.sgd(0.1, 0.9), (64, 784), 10
    norm = lambda: {"scale": jnp.ones(128), "bias": jnp.zeros(128)}
    parameters = {"fc1": dense(rng, 64, 128), "fc2": dense(rng, 128, 128), "fc3": dense(rng, 128, 10), "norm1": norm(), "norm2": norm()}
    return parameters, mlp_ln, optax.adamw(1e-3, weight_decay=0.01), (64, 64), 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("linear", "mlp", "mlp_ln"))
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    parameters, forward, optimizer, shape, classes = make(args.model, rng)
    x = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    y = jnp.asarray(rng.integers(0, classes, shape[0])) if classes else jnp.asarray(rng.standard_normal((shape[0], 1)), jnp.float32)

    def loss(p, x, y):
        out = forward(p, x)
        return optax.softmax_cross_entropy_with_integer_labels(out, y).mean() if classes else ((out - y) ** 2).mean()

    def update(p, state, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        change, state = optimizer.update(gradients, state, p)
        return optax.apply_updates(p, change), state, value

    compiled, state = jax.jit(update, donate_argnums=(0, 1)), optimizer.init(parameters)

    def step():
        nonlocal parameters, state
        parameters, state, value = compiled(parameters, state, x, y)
        value.block_until_ready()

    report(step, args.seconds, system="jax", config="jit", version=jax.__version__)


if __name__ == "__main__":
    main()
