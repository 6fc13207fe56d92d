/* client/tools/ctl/nodes.c - sluicectl nodes: peers of the node. sluicectl keygen: its keys. */
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/nics.h"
#include "client/tools/ctl/status_ready.h"
#include "ipc/msg/sl_curve.h"

#include <stdlib.h>

static json_t *node_json(const struct sl_node_info *node)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", node->name,
        "address", node->address, "source", node->source, "state", node->state, "link", node->link,
        "incarnation", ctl_json_u64(node->incarnation), "round_trip_ns",
        ctl_json_u64(node->round_trip_ns), "last_seen_ago_ns", ctl_json_u64(node->last_seen_ago_ns),
        "read_bytes", ctl_json_u64(node->read_bytes), "read_values",
        ctl_json_u64(node->read_values), "failures", ctl_json_u64(node->failures), "pinned_values",
        ctl_json_u64(node->pinned_values));
}

static json_t *nodes_json(const struct sl_cluster_info *self, const struct sl_node_info *nodes,
                          uint32_t count, const struct ctl_nics *nics)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(rows, node_json(&nodes[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "name", self->name, "listen", self->listen,
                     "fabric", self->fabric, "nodes", rows, "nics", ctl_nics_json(nics), "nics_why",
                     ctl_nics_why(nics));
}

static int nodes_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    uint32_t count = 0;
    struct sl_error why = {0};
    struct sl_cluster_info self;
    struct sl_node_info nodes[SL_NODES_MAX];
    struct sl_client *client = NULL;
    const char *sysfs = SL_SYSFS;
    const struct ctl_option options[] = {{.name = "sysfs", .text = &sysfs}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_nodes(client, &self, nodes, &count, 0, &why);
    }
    sl_client_close(&client);
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    struct ctl_nics *nics = ctl_nics_look(ctl->config, sysfs, true);
    code = status_answer(ctl, nodes_json(&self, nodes, count, nics));
    free(nics);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_nodes = {
    .name = "nodes",
    .summary = "list the peers of the node",
    .help = "nodes [--sysfs DIR]\n"
            "\n"
            "Prints for each peer: state (alive; away: it does not answer; broken: it fails and is not asked for a while; asks: it\n"
            "reads from this node, which does not read from it; no key: its NAME.pub is missing, so this node does not connect to it;\n"
            "twice: another node has its name and is refused), link that carries bytes, round-trip time of the last greeting, bytes and\n"
            "values read from it, failures, incarnation (when its transporter started). Then the number of bytes copied for each byte that\n"
            "was read from peers or handed over directly: 1 through the node's memory, 0 directly between engines' pools (settings\n"
            "fabric_pools, cache_remote_loads).\n"
            "Then the device memory of engines: registered by dmabuf, or why its bytes pass through the node's memory.\n"
            "Then each RDMA port of this machine: state of its link, speed, socket, current load, and the ranks it serves.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = nodes_command,
};
/* clang-format on */

static int keygen_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    if (sl_curve_make(ctl->words[0], ctl->words[1], &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    (void)ctl_answer(ctl, json_pack("{s:o, s:o}", "directory", ctl_json_text(ctl->words[0]), "node",
                                    ctl_json_text(ctl->words[1])));
    return CTL_SUCCESS; /* the keys exist even if printing failed */
}

/* clang-format off */
const struct ctl_command ctl_keygen = {
    .name = "keygen",
    .summary = "make a node's keys",
    .help = "keygen DIRECTORY NODE\n"
            "\n"
            "Creates DIRECTORY/NODE.secret (mode 0600) and DIRECTORY/NODE.pub. A node with `cluster_keys = DIRECTORY` and\n"
            "`node_name = NODE` proves its identity by the secret. Peers whose NAME.pub is in its directory may connect to it.\n"
            "Copy each node's .pub to its peers. Never copy a .secret.\n"
            "\n"
            "  --json            answer as JSON",
    .run = keygen_command,
    .words_min = 2,
    .words_max = 2,
    .words = "a directory and the name of the node",
};
/* clang-format on */
