/* actors/registrar/engines/engines.h - registrations of engines, kept as notes in the index. */
#ifndef SL_REGISTRAR_ENGINES_ENGINES_H
#define SL_REGISTRAR_ENGINES_ENGINES_H

#include "actors/registrar/base/core.h"

struct reg_engine {
    bool used;
    uint64_t id, team; /* team 0: none */
    struct sl_proc_id proc;
    uint64_t seq; /* request number of the registration */
    char sender[REG_NAME_BYTES];
    unsigned char *frame; /* ENGINE_GET_REPLY, encoded */
    uint64_t frame_bytes;
    sl_ref *blobs;
    uint32_t blob_count;
};

struct reg_engines {
    struct reg_engine *all;
    uint32_t count;
    struct sl_codec *codec; /* of stored frames */
    uint32_t max;           /* setting */
    struct {
        sl_metric engine_count;
    } metric;
};

/* Decodes the registration into *kept, borrowed until the next call. False: it cannot be read. */
bool reg_engine_body(struct registrar *self, const struct reg_engine *engine, struct sl_msg *kept);

/* ---- check.c ---- */
/* Validates a registration. Errors: SL_ERR_INVALID (names the field), SL_ERR_NO_MEMORY. */
sl_err reg_engine_check(const struct sl_body_engine_register *engine, struct sl_error *why);

/* ---- teams.c: registrations of several processes that form one engine ---- */
/* Checks that the registration can join its team; frame_bytes: its encoded size. Errors:
 * SL_ERR_INVALID (differs from the other members), SL_ERR_EXISTS (a rank is registered),
 * SL_ERR_LIMIT (the team would not fit into a message). */
sl_err reg_team_check(struct registrar *self, const struct sl_body_engine_register *engine,
                      uint64_t frame_bytes, struct sl_error *why);
void reg_team_get(struct registrar *self, const struct sl_msg *msg); /* ENGINE_GET of a team */

/* ---- identities.c: a file beside the logs that says what model identities consist of ---- */
void reg_identity_note(struct registrar *self, const struct sl_body_engine_register *body);

/* ---- ends.c: the end of a registration whose process lives on ---- */
/* Answers the ENGINE_END when the swappers of these ranks (a bit each), the coordinator and the
 * transporter have released the engine's memory, or at its deadline (SL_ERR_TIMEOUT). Errors,
 * answered: SL_ERR_LIMIT. */
void reg_engine_end_wait(struct registrar *self, const struct sl_msg *msg, uint64_t ranks);

/* Notifies the transporter, which registers engines' memory with the NIC: ENGINE_ADDED,
 * ENGINE_OVER. Does not wait for it. */
void reg_transporter_notify(struct registrar *self, uint32_t type, uint64_t engine_id);

/* Ranks of these regions, a bit each. */
uint64_t reg_engine_ranks(const struct sl_item_region *regions, uint64_t count);

/* Ends the engines that are registered with memory that is being revoked. */
void reg_engines_end_of_pool(struct registrar *self, uint64_t epoch);

extern const struct reg_part reg_engines_part;
extern const struct reg_part reg_ends_part;

#endif
