/* client/lib/nodes.c - asks the transporter for the nodes it knows. */
#include "client/lib/internal.h"

#include <string.h>

struct nodes_asked {
    struct sl_cluster_info *self;
    struct sl_node_info *nodes;
    uint32_t *count;
};

static void nodes_taken(void *context, const struct sl_msg *reply)
{
    const struct nodes_asked *asked = context;
    const struct sl_body_nodes_reply *body = &reply->body.nodes_reply;
    if (reply->code != SL_OK) {
        return;
    }
    sl_client_text_take(asked->self->name, sizeof asked->self->name, &body->name);
    sl_client_text_take(asked->self->listen, sizeof asked->self->listen, &body->listen);
    sl_client_text_take(asked->self->fabric, sizeof asked->self->fabric, &body->fabric);
    *asked->count = (uint32_t)SL_MIN(body->nodes.count, (uint64_t)SL_NODES_MAX);
    for (uint32_t i = 0; i < *asked->count; i++) {
        const struct sl_item_node *item = &body->nodes.at[i];
        struct sl_node_info *node = &asked->nodes[i];
        *node = (struct sl_node_info){.incarnation = item->incarnation,
                                      .round_trip_ns = item->round_trip_ns,
                                      .last_seen_ago_ns = item->last_seen_ago_ns,
                                      .read_bytes = item->read_bytes,
                                      .read_values = item->read_values,
                                      .failures = item->failures,
                                      .pinned_values = item->pinned_values};
        sl_client_text_take(node->name, sizeof node->name, &item->name);
        sl_client_text_take(node->address, sizeof node->address, &item->address);
        sl_client_text_take(node->state, sizeof node->state, &item->state);
        sl_client_text_take(node->link, sizeof node->link, &item->link);
        sl_client_text_take(node->source, sizeof node->source, &item->source);
    }
}

sl_err sl_nodes(struct sl_client *client, struct sl_cluster_info *self, struct sl_node_info *nodes,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why)
{
    struct nodes_asked asked = {.self = self, .nodes = nodes, .count = count};
    struct sl_client_call call = {.to = "transporter.0",
                                  .deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = nodes_taken,
                                  .context = &asked};
    call.msg.type = SL_MSG_NODES;
    *self = (struct sl_cluster_info){0};
    *count = 0;
    return sl_client_call(client, &call, why);
}
