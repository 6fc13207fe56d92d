/* client/python/look.cpp - read-only queries: exists, size, stat, list, explain, nodes. */
#include "client/python/internal.hpp"

#include <cinttypes>
#include <cstdio>

namespace py
{

/* ---- results ---- */

static ref digest_of(uint64_t low, uint64_t high)
{
    char digits[40];
    (void)std::snprintf(digits, sizeof digits, "%016" PRIx64 "%016" PRIx64, high, low);
    return own(PyLong_FromString(digits, nullptr, 16));
}

static ref object_info_of(const sl_object_info &info)
{
    return record(kinds.object_info, std::string_view(info.key.at, info.key.length),
                  info.length_bytes, info.in_memory, info.on_disk,
                  digest_of(info.digest_low, info.digest_high));
}

static double seconds_of(uint64_t ns)
{
    return static_cast<double>(ns) / 1e9;
}

/* ---- one key ---- */

static bool exists(client &self, const key &name)
{
    sl_err err = SL_OK;
    self.ask([&](sl_error *) {
        err = sl_exists(self.at, name);
        return err == SL_ERR_NOT_FOUND ? SL_OK : err;
    });
    return err == SL_OK;
}

static sl_object_info info_of(client &self, const key &name)
{
    sl_object_info info = {};
    self.ask([&](sl_error *) { return sl_stat(self.at, name, &info); });
    return info;
}

static uint64_t size(client &self, const key &name)
{
    return info_of(self, name).length_bytes;
}

static ref stat(client &self, const key &name)
{
    return object_info_of(info_of(self, name));
}

/* ---- list ---- */

/* Visible objects, collected without the interpreter's lock; `keys` has their keys in order. */
struct listing {
    std::vector<sl_object_info> infos; /* key.at is not set yet */
    std::string keys;
    uint64_t limit;
    bool no_memory;
};

static bool listed(void *context, const sl_object_info *info)
{
    auto *to = static_cast<listing *>(context);
    if (to->infos.size() == to->limit) {
        return false;
    }
    try {
        to->keys.append(info->key.at, info->key.length);
        to->infos.push_back(*info);
    } catch (const std::bad_alloc &) { /* an exception must not pass through libsluice */
        to->no_memory = true;
    }
    return !to->no_memory;
}

static ref list(client &self, const char *prefix, PyObject *limit)
{
    listing found = {{}, {}, limit == nullptr || limit == Py_None ? UINT64_MAX : u64(limit), false};
    self.ask([&](sl_error *why) {
        return sl_list(self.at, prefix == nullptr ? "" : prefix, listed, &found, why);
    });
    if (found.no_memory) {
        throw std::bad_alloc();
    }
    const char *at = found.keys.data();
    return list_of(found.infos.size(), [&](size_t i) {
        found.infos[i].key.at = std::exchange(at, at + found.infos[i].key.length);
        return object_info_of(found.infos[i]);
    });
}

/* ---- explain, nodes ---- */

static ref explain(client &self, const keys &names, timeout wait)
{
    sl_miss_reason reasons[SL_EXPLAIN_KEYS_MAX];
    if (names.count > SL_EXPLAIN_KEYS_MAX) {
        refuse(SL_ERR_INVALID, "explain: at most 64 keys");
    }
    self.ask([&](sl_error *why) {
        return sl_explain(self.at, names.at.data(), names.count, reasons, wait, why);
    });
    return list_of(names.count, [&](size_t i) {
        const sl_miss_reason &reason = reasons[i];
        return record(kinds.reason, reason.code,
                      reason.ago_ns == 0 ? none() : give(seconds_of(reason.ago_ns)), reason.text);
    });
}

static ref node_info_of(const sl_node_info &node)
{
    return record(kinds.node_info, node.name, node.address, node.state, node.link, node.source,
                  node.incarnation, seconds_of(node.round_trip_ns),
                  seconds_of(node.last_seen_ago_ns), node.read_bytes, node.read_values,
                  node.failures, node.pinned_values);
}

static ref nodes(client &self, timeout wait)
{
    sl_cluster_info cluster = {};
    sl_node_info others[SL_NODES_MAX];
    uint32_t count = 0;
    self.ask([&](sl_error *why) { return sl_nodes(self.at, &cluster, others, &count, wait, why); });
    return tuple(record(kinds.cluster_info, cluster.name, cluster.listen, cluster.fabric),
                 list_of(count, [&](size_t i) { return node_info_of(others[i]); }));
}

void look_methods(methods &client)
{
    add(client, METHOD("exists", "(key)", exists, "Whether this node has the key. Pins nothing."),
        METHOD("size", "(key)", size, "Returns the size of the value in bytes."),
        METHOD("stat", "(key)", stat, "Returns the object's ObjectInfo."),
        METHOD("list", "(prefix='', *, limit=None)", list,
               "Returns ObjectInfos of visible objects whose keys begin with prefix."),
        METHOD("explain", "(keys, *, timeout=None)", explain,
               "Returns, for each of at most 64 keys, why it is a miss."),
        METHOD("nodes", "(*, timeout=None)", nodes,
               "Returns (ClusterInfo of this node, [NodeInfo of each other node])."));
}

} // namespace py
