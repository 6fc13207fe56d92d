/* client/python/layers.cpp - stores and loads by layers, also of other processes of the engine. */
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
               "Store by layers: reports that this layer is computed. Call it in order."),
        METHOD("layers_ready", "(layers)", (bound<sl_op_layers_ready, op, uint32_t>::it),
               "Store by layers: reports that all ranks have computed the first `layers` "
               "layers, whatever was reported before."),
        METHOD("layer_wait", "(layer, timeout=None)",
               (asked<sl_op_layer_wait, uint32_t, op, uint32_t, timeout>::it),
               "Load by layers: waits until the layer is on the device. Returns the number of "
               "blocks, which is the same for all layers."));
    add(of_engine,
        METHOD("layers_ready", "(ops, rank, layers, timeout=None)", layers_ready,
               "Reports that this rank has computed the first `layers` layers of stores by "
               "layers that another process of the engine started. ops: their numbers "
               "(Op.number), or one number. timeout None: sends the report and does not wait. "
               "A layer is ready when all ranks have reported it."),
        METHOD("layers_wait", "(op, rank, layers, timeout=None)", layers_wait,
               "Waits until the first `layers` layers of a load by layers, started by another "
               "process of the engine, are on the devices of all ranks. Returns (number of "
               "layers there, number of blocks of each). The number of blocks may shrink: "
               "compare it each time."));
}

} // namespace py
