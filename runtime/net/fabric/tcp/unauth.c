/* runtime/net/fabric/tcp/unauth.c - unauthenticated connections: which to close if there are too
 * many (runtime/net/sl_unauth.h). */
#include "runtime/net/fabric/tcp/internal.h"
#include "runtime/net/sl_unauth.h"

static uint32_t place_of(const struct tcp *tcp, const struct tcp_conn *conn)
{
    return conn->index - tcp->lane_count;
}

sl_err tcp_unauth_open(struct tcp *tcp, const struct sl_fabric_options *options,
                       struct sl_error *why)
{
    if (tcp->conn_count == tcp->lane_count) {
        return SL_OK; /* not listening */
    }
    return sl_unauth_create(tcp->conn_count - tcp->lane_count, options->unauthenticated_max,
                            &tcp->unauth, why);
}

static void unauth_drop(struct tcp *tcp, uint32_t place)
{
    struct tcp_conn *conn = &tcp->conns[tcp->lane_count + place];
    conn->rail->stats.over_limit++;
    tcp_close(conn);
}

void tcp_unauth_add(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t from_bytes = sizeof(from);
    if (getpeername(conn->fd, (struct sockaddr *)&from, &from_bytes) != 0) {
        from.ss_family = AF_UNSPEC; /* closed already: its receive will fail */
    }
    tcp->served_count++;
    uint32_t goes = sl_unauth_add(tcp->unauth, place_of(tcp, conn), &from);
    if (goes == SL_UNAUTH_NONE && tcp->served_count > conn->rail->options.connections_max) {
        goes = sl_unauth_displace(tcp->unauth); /* itself, if all others are authenticated */
    }
    if (goes != SL_UNAUTH_NONE) {
        unauth_drop(tcp, goes);
    }
}

/* A peer's id may have been recorded by others: only a limited number of connections with one id
 * authenticate at a time, and the oldest is displaced. */
void tcp_unauth_named(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    struct tcp_conn *oldest = NULL;
    uint32_t count = 0;
    sl_unauth_named(tcp->unauth, place_of(tcp, conn));
    for (uint32_t i = tcp->lane_count; i < tcp->conn_count; i++) {
        struct tcp_conn *other = &tcp->conns[i];
        if (other == conn || other->state != CONN_GREETING || other->asker != conn->asker) {
            continue;
        }
        count++;
        oldest = oldest == NULL || other->rx_due_ns < oldest->rx_due_ns ? other : oldest;
    }
    if (count >= TCP_NAMED_MAX) {
        unauth_drop(tcp, place_of(tcp, oldest));
    }
}

void tcp_unauth_proved(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    sl_unauth_remove(tcp->unauth, place_of(tcp, conn));
}

void tcp_unauth_remove(struct tcp_conn *conn)
{
    struct tcp *tcp = tcp_of(conn->rail);
    SL_ASSERT(tcp->served_count > 0);
    tcp->served_count--;
    sl_unauth_remove(tcp->unauth, place_of(tcp, conn));
}
