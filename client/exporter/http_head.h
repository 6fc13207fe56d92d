/* client/exporter/http_head.h - the head of an HTTP/1.1 request, read strictly.
 *
 * A request that two servers could read in two ways is refused: two lengths, a length beside
 * chunks, a bare LF, a folded line, a blank before a colon, a second Host. So no request can hide
 * in another one on its way through a proxy. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_HTTP_HEAD_H
#define SL_CLIENT_MOONCAKE_DAEMONS_HTTP_HEAD_H

#include "runtime/sl_base.h"

#define MC_HEAD_BYTES_MAX  (32 * SL_KIB)
#define MC_HEAD_FIELDS_MAX 64u

struct mc_refusal {  /* arrives zeroed */
    unsigned status; /* of HTTP; 0: nothing is refused */
    const char *text;
};
struct mc_head { /* texts lie in the bytes that were parsed */
    const char *method, *path;
    const char *arguments, *arguments_end; /* NAME=VALUE, each ended by a zero */
    struct {
        const char *name, *value;
    } fields[MC_HEAD_FIELDS_MAX];
    uint32_t field_count;
    uint64_t body_bytes; /* by Content-Length; UINT64_MAX: more than 64 bits can say */
    bool has_length, chunked;
    bool http_1_0;
    bool closes; /* the connection ends with the answer */
    bool waits;  /* for 100 Continue before it sends its body */
};

/* Looks for the end of a head in text. *scanned: how far earlier calls looked, 0 at first. Gives the
 * bytes of the head with its blank line; 0: it is not whole yet, or refused. */
size_t mc_head_scan(const char *text, size_t length, size_t *scanned, struct mc_refusal *refusal);
/* Parses a head that mc_head_scan found, and writes zeros into it. False: refused. */
bool mc_head_parse(char *text, size_t length, struct mc_head *out, struct mc_refusal *refusal);
/* NULL: there is none. */
const char *mc_head_field(const struct mc_head *head, const char *name);
/* The first of the name, with its escapes. NULL: there is none. */
const char *mc_head_argument(const struct mc_head *head, const char *name);

#endif
