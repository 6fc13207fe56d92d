/* client/ctl/explain.h - why blocks are not here: of keys, of an op, of tokens. */
#ifndef SL_CLIENT_CTL_EXPLAIN_H
#define SL_CLIENT_CTL_EXPLAIN_H

#include "client/ctl/commands.h"

/* ---- explain.c ---- */
json_t *explain_json(struct sl_object_key key, const struct sl_story *story);
/* Any number of keys. Errors: those of sl_explain. */
sl_err explain_keys(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                    struct sl_story *stories, struct sl_error *why);

/* ---- explain_op.c ---- */
int explain_request(struct ctl *ctl, const char *id);

/* ---- explain_tokens.c ---- */
struct explain_tokens {
    const char *path; /* "-": standard input */
    const char *model, *format, *seed;
    uint64_t block_tokens; /* 0, and NULL: as the model identity says */
};
int explain_tokens(struct ctl *ctl, const struct explain_tokens *what);

/* ---- identities.c: what model identities are made of, as this node knows them ---- */
/* An array of objects {"identity": HEX, "name": ..., "dtype": ...}, the youngest last; empty: there are
 * none. New reference. */
json_t *identities_read(const struct ctl *ctl);
const char *identity_fact(const json_t *identity, const char *name); /* "": not known */
/* 'dtype "bf16" here, "fp8" there; ...' */
void identities_differ(const json_t *here, const json_t *there, char *out, size_t room);
/* Says of which other identity the block is here: block_of gives its key there, false: it has none.
 * Fills text: "stored under ..."; "": nowhere. */
sl_err identities_seek(struct sl_client *client, const json_t *identities, const char *identity,
                       bool (*block_of)(void *context, const json_t *there, char *key, size_t room),
                       void *context, char *text, size_t room, struct sl_error *why);

#endif
