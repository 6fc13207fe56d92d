/* client/exporter/http_input.h - requests as they arrive at a connection, one by one: the head,
 * and then its body, if the caller wants to read on. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_HTTP_INPUT_H
#define SL_CLIENT_MOONCAKE_DAEMONS_HTTP_INPUT_H

#include "client/exporter/http.h"
#include "client/exporter/http_head.h"

#define MC_INPUT_BYTES (4 * SL_KIB) /* of a body, read at a time at least */

struct mc_input { /* arrives zeroed, then: */
    int fd;       /* borrowed; its SO_RCVTIMEO bounds every wait */
    /* Whether the body may have room bytes of memory, instead of those that it has; 0: always. */
    bool (*charge)(void *context, uint64_t room);
    void *context;

    struct mc_head head;
    char *body; /* owned; NULL: empty, or not kept */
    size_t body_bytes, body_room;
    size_t head_bytes, at, used; /* in holds the head, and from at to used what follows it */
    char in[MC_HEAD_BYTES_MAX + MC_INPUT_BYTES];
};
enum mc_read { MC_READ_FINE, MC_READ_REFUSED, MC_READ_GONE };

enum mc_read mc_head_read(struct mc_input *input, struct mc_refusal *refusal);
/* Reads the body to its end, and keeps it if keeps. Says 100 Continue to a peer that waits for it. */
enum mc_read mc_body_read(struct mc_input *input, bool keeps, struct mc_refusal *refusal);
/* Drops what arrives. False: nothing more does. */
bool mc_input_drop(struct mc_input *input);
/* Frees the body; the next request may be read. */
void mc_input_next(struct mc_input *input);
/* Sends all of it; more: other bytes follow at once. False: the peer is gone, or takes nothing for
 * SO_SNDTIMEO. */
bool mc_send(int fd, const char *bytes, size_t length, bool more);

#endif
