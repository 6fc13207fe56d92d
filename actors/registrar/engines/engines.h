/* actors/registrar/engines/engines.h - engines: registrations, kept as notes in the index. */
#ifndef SL_REGISTRAR_ENGINES_ENGINES_H
#define SL_REGISTRAR_ENGINES_ENGINES_H

#include "actors/registrar/base/core.h"

struct reg_engine {
    bool used;
    uint64_t id;
    struct sl_proc_id proc;
    uint64_t seq; /* of the registration */
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

/* An engine registered with memory that is being revoked is over. */
void reg_engines_pool_over(struct registrar *self, uint64_t epoch);

extern const struct reg_part reg_engines_part;

#endif
