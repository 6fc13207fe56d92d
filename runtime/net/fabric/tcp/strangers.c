/* runtime/net/fabric/tcp/strangers.c - unauthenticated connections: which to close if there are too
 * many (runtime/net/sl_strangers.h). */
#include "runtime/net/fabric/tcp/internal.h"
#include "runtime/net/sl_strangers.h"

static uint32_t place_of(const struct tcp *tcp, const struct tcp_conn *conn)
{
    return conn->index - tcp->lane_count;
}

sl_err tcp_strangers_open(struct tcp *tcp, const struct sl_fabric_options *options,
                          struct sl_error *why)
{
    if (tcp->conn_count == tcp->lane_count) {
        return SL_OK; /* not listening */
    }
    return sl_strangers_create(tcp->conn_count - tcp->lane_count, options->strangers_max,
                               &tcp->strangers, why);
}

static void stranger_drop(struct tcp *tcp, uint32_t place)
{
    struct tcp_conn *conn = &tcp->conns[tcp->lane_count + place];
    conn->rail->stats.over_limit++;
    tcp_close(conn);
}

void tcp_stranger_came(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t from_bytes = sizeof(from);
    if (getpeername(conn->fd, (struct sockaddr *)&from, &from_bytes) != 0) {
        from.ss_family = AF_UNSPEC; /* closed already: its receive will fail */
    }
    tcp->served_count++;
    uint32_t goes = sl_strangers_add(tcp->strangers, place_of(tcp, conn), &from);
    if (goes == SL_STRANGERS_NONE && tcp->served_count > conn->rail->options.connections_max) {
        goes = sl_strangers_push(tcp->strangers); /* itself, if all others are authenticated */
    }
    if (goes != SL_STRANGERS_NONE) {
        stranger_drop(tcp, goes);
    }
}

/* A peer's id may have been recorded by others: only a limited number of connections with one id
 * authenticate at a time, and the oldest is displaced. */
void tcp_stranger_named(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct tcp_conn *oldest = NULL;
    uint32_t count = 0;
    sl_strangers_named(tcp->strangers, place_of(tcp, conn));
    for (uint32_t i = tcp->lane_count; i < tcp->conn_count; i++) {
        struct tcp_conn *other = &tcp->conns[i];
        if (other == conn || other->state != CONN_GREETING || other->asker != conn->asker) {
            continue;
        }
        count++;
        oldest = oldest == NULL || other->rx_due_ns < oldest->rx_due_ns ? other : oldest;
    }
    if (count >= TCP_NAMED_MAX) {
        stranger_drop(tcp, place_of(tcp, oldest));
    }
}

void tcp_stranger_known(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    sl_strangers_remove(tcp->strangers, place_of(tcp, conn));
}

void tcp_stranger_gone(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    SL_ASSERT(tcp->served_count > 0);
    tcp->served_count--;
    sl_strangers_remove(tcp->strangers, place_of(tcp, conn));
}
