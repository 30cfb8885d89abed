"""The limit that times are printed beside; README.md tells what it means."""


def limits(cost, rates, precision):
    """FLOPs ÷ rate of products, bytes ÷ bandwidth, and their sum, in ms, over commands: a list of their (bytes, FLOPs).

    A command's bytes come from the smallest cache that holds them all. The sum is a yardstick, not a bound.
    """
    def bandwidth(size):
        return max((rate for fits, rate in rates["bandwidth"] if fits >= size), default=rates["bandwidth"][-1][1])

    flops_ms = 1e3 * sum(flops for _, flops in cost) / rates["flops"][precision]
    bytes_ms = 1e3 * sum(size / bandwidth(size) for size, _ in cost)
    return {"limit_ms": flops_ms + bytes_ms, "limit_flops_ms": flops_ms, "limit_bytes_ms": bytes_ms}
