/* client/python/layers.cpp - ops by layers: of one's own, and of another process of the engine. */
#include "client/python/internal.hpp"

namespace py
{

constexpr size_t ops_max = 4096;

static void layers_ready(engine &self, PyObject *ops, uint32_t rank, uint32_t layers, timeout wait)
{
    std::vector<uint64_t> numbers;
    if (PyLong_Check(ops)) {
        numbers.push_back(u64(ops));
    } else {
        const items given(ops, ops_max, "ops");
        for (uint32_t i = 0; i < given.count; i++) {
            numbers.push_back(u64(given[i]));
        }
    }
    self.ask([&](sl_error *why) {
        sl_err err = SL_OK;
        for (size_t i = 0; err == SL_OK && i < numbers.size(); i++) {
            const sl_rank_layers what = {numbers[i], rank, layers};
            err = sl_layers_ready(self.at, &what, wait, why);
        }
        return err;
    });
}

static ref layers_wait(engine &self, uint64_t op, uint32_t rank, uint32_t layers, timeout wait)
{
    const sl_rank_layers what = {op, rank, layers};
    sl_layers_in in = {};
    self.ask([&](sl_error *why) { return sl_layers_wait(self.at, &what, wait, &in, why); });
    return tuple(in.layers, in.block_count);
}

void layer_methods(methods &of_engine, methods &of_op)
{
    add(of_op,
        METHOD("layer_ready", "(layer)", (bound<sl_op_layer_ready, op, uint32_t>::it),
               "Of a store by layers (layer_count): this layer is computed. In order."),
        METHOD("layers_ready", "(layers)", (bound<sl_op_layers_ready, op, uint32_t>::it),
               "Of a store by layers: all ranks have computed the first so many, whatever was "
               "said before."),
        METHOD("layer_wait", "(layer, timeout=None)",
               (asked<sl_op_layer_wait, uint32_t, op, uint32_t, timeout>::it),
               "Of a load by layers: waits until the layer is on the device; the number of "
               "blocks, the same for all layers."));
    add(of_engine,
        METHOD("layers_ready", "(ops, rank, layers, timeout=None)", layers_ready,
               "This rank has computed the first so many layers of stores by layers that "
               "another process of the engine began. ops: their numbers (Op.number), or one. "
               "None: it is said and not waited for. A layer is ready when all ranks have said "
               "so."),
        METHOD("layers_wait", "(op, rank, layers, timeout=None)", layers_wait,
               "Waits until the first so many layers of a load by layers that another process "
               "of the engine began are on the devices of all ranks: (how many are, of how many "
               "blocks). Whoever counts on blocks compares their number each time."));
}

} // namespace py
