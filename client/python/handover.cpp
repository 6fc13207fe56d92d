/* client/python/handover.cpp - hand-over calls of Client: receipts that arrived, holds that end. */
#include "client/python/internal.hpp"

namespace py
{

constexpr size_t handovers_max = 1024;

void plain_take(PyObject *object, void *out, size_t count, const char *what)
{
    const readable given(object);
    if (given.size() != count) {
        fail(PyExc_ValueError, "a %s has %zu bytes, not %zd", what, count, given.view.len);
    }
    std::memcpy(out, given.at(), count);
}

static ref handover_arrived(client &self, PyObject *sequence, timeout wait)
{
    const items given(sequence, handovers_max, "hand-overs");
    std::vector<sl_transfer_params> receipts = room<sl_transfer_params>(given.count);
    std::vector<sl_err> codes = room<sl_err>(given.count);
    for (uint32_t i = 0; i < given.count; i++) {
        plain_take(given[i], &receipts[i], sizeof receipts[i], "receipt");
    }
    self.ask([&](sl_error *why) {
        return sl_kv_arrived(self.at, receipts.data(), given.count, codes.data(), wait, why);
    });
    return codes_list(codes.data(), given.count);
}

static ref handover_end(client &self, PyObject *sequence, timeout wait)
{
    const items given(sequence, handovers_max, "hand-overs");
    std::vector<uint64_t> ids = room<uint64_t>(given.count);
    std::vector<sl_err> codes = room<sl_err>(given.count);
    for (uint32_t i = 0; i < given.count; i++) {
        ids[i] = u64(given[i]);
    }
    self.ask([&](sl_error *why) {
        return sl_kv_end(self.at, ids.data(), given.count, codes.data(), wait, why);
    });
    return codes_list(codes.data(), given.count);
}

void handover_methods(methods &client)
{
    add(client,
        METHOD("handover_arrived", "(receipts, *, timeout=None)", handover_arrived,
               "Decode: reports that first tokens arrived with these receipts. Returns codes."),
        METHOD("handover_end", "(ids, *, timeout=None)", handover_end,
               "Prefill: ends these hand-overs; their blocks may be evicted. Returns codes."));
}

} // namespace py
