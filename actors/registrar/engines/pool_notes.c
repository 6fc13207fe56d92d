/* actors/registrar/engines/pool_notes.c - notes of pools in the index, which survive a restart. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/engines/pools.h"

#include <string.h>

#define POOL_NOTE_VERSION 2u

struct pool_note { /* a BLOB; the mappers follow */
    uint32_t version, state, sluice, swapper_may_map;
    uint64_t rank, epoch, length_bytes;
    char name[REG_POOL_NAME_BYTES];
    char pool[REG_NAME_BYTES];
    char owner_name[REG_NAME_BYTES];
    uint64_t owner_seq;
    struct sl_proc_id owner;
    struct reg_pool_handle handle;
    uint32_t mapper_count, reserved;
};
_Static_assert(sizeof(struct reg_pool_handle) == 136, "part of a pool's note");
_Static_assert(sizeof(struct reg_pool_mapper) == 72, "part of a pool's note");
_Static_assert(sizeof(struct pool_note) == 336, "format of a pool's note");

void reg_pool_note_drop(struct registrar *self, struct reg_pool *pool)
{
    if (pool->blob != 0) {
        sl_index_set_kind(self->index, pool->blob, SL_RECORD_FREE);
        pool->blob = 0;
    }
    pool->unnoted = false;
}

sl_err reg_pool_note_write(struct registrar *self, struct reg_pool *pool, struct sl_error *why)
{
    unsigned char
        bytes[sizeof(struct pool_note) + REG_POOL_MAPPERS_MAX * sizeof(struct reg_pool_mapper)];
    struct pool_note note = {
        .version = POOL_NOTE_VERSION,
        .state = pool->state,
        .sluice = pool->sluice,
        .swapper_may_map = pool->swapper_may_map,
        .rank = pool->rank,
        .epoch = pool->epoch,
        .length_bytes = pool->length_bytes,
        .owner_seq = pool->owner_seq,
        .owner = pool->owner,
        .handle = pool->handle,
        .mapper_count = pool->mapper_count,
    };
    memcpy(note.name, pool->name, sizeof(note.name));
    memcpy(note.pool, pool->pool, sizeof(note.pool));
    memcpy(note.owner_name, pool->owner_name, sizeof(note.owner_name));
    uint32_t mapper_bytes = pool->mapper_count * (uint32_t)sizeof(pool->mappers[0]);
    memcpy(bytes, &note, sizeof(note));
    memcpy(bytes + sizeof(note), pool->mappers, mapper_bytes);
    uint32_t length = (uint32_t)sizeof(note) + mapper_bytes;
    sl_err err = reg_note_put(self, bytes, length, REG_BLOB_POOL, &pool->blob, why);
    pool->unnoted = pool->unnoted && err != SL_OK;
    return err;
}

void reg_pool_note(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    pool->unnoted = reg_pool_note_write(self, pool, NULL) != SL_OK;
    self->pools->due = self->pools->due || pool->unnoted;
}

/* ---- restart ---- */

static bool text_ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static bool mappers_fit(const struct pool_note *note, const void *bytes)
{
    for (uint32_t i = 0; i < note->mapper_count; i++) {
        struct reg_pool_mapper mapper;
        memcpy(&mapper, (const unsigned char *)bytes + i * sizeof(mapper), sizeof(mapper));
        if (!text_ends(mapper.name, sizeof(mapper.name)) ||
            !sl_actor_name_is_clean(mapper.name, strlen(mapper.name)) ||
            reg_proc_none(mapper.proc) || mapper.fd > UINT32_MAX) {
            return false;
        }
    }
    return true;
}

/* Validates a note, which bytes begins with. */
static bool note_fits(const struct pool_note *note, const void *bytes, uint32_t length_bytes)
{
    return note->version == POOL_NOTE_VERSION && note->state > REG_POOL_ABSENT &&
           note->state <= REG_POOL_REVOKING && note->epoch != 0 && note->length_bytes != 0 &&
           note->rank < 64 && note->mapper_count <= REG_POOL_MAPPERS_MAX &&
           note->handle.ipc_bytes <= REG_POOL_IPC_BYTES &&
           note->handle.kind <= REG_MEMORY_CUDA_FD && note->handle.fd <= UINT32_MAX &&
           length_bytes == sizeof(*note) + note->mapper_count * sizeof(struct reg_pool_mapper) &&
           text_ends(note->name, sizeof(note->name)) && text_ends(note->pool, sizeof(note->pool)) &&
           text_ends(note->owner_name, sizeof(note->owner_name)) &&
           reg_pool_names_fit(note->name, note->pool) &&
           sl_actor_name_is_clean(note->owner_name, strlen(note->owner_name)) &&
           mappers_fit(note, (const unsigned char *)bytes + sizeof(*note));
}

static void pool_fill(struct reg_pool *pool, const struct pool_note *note, const void *mappers)
{
    pool->state = (enum reg_pool_state)note->state;
    pool->sluice = note->sluice != 0;
    pool->swapper_may_map = note->swapper_may_map != 0;
    pool->epoch = note->epoch;
    pool->length_bytes = note->length_bytes;
    pool->owner_seq = note->owner_seq;
    pool->owner = note->owner;
    memcpy(pool->owner_name, note->owner_name, sizeof(pool->owner_name));
    pool->handle = note->handle;
    pool->mapper_count = note->mapper_count;
    memcpy(pool->mappers, mappers, note->mapper_count * sizeof(pool->mappers[0]));
}

static sl_err pool_restore(struct registrar *self, sl_ref blob, const void *bytes,
                           uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct pool_note note = {0};
    if (length_bytes < sizeof(note)) {
        return SL_ERR_FOREIGN;
    }
    memcpy(&note, bytes, sizeof(note));
    uint32_t row = note_fits(&note, bytes, length_bytes)
                       ? reg_pool_row_make(self, note.name, note.rank, note.pool)
                       : REG_NONE;
    struct reg_pool *pool = row == REG_NONE ? NULL : &self->pools->all[row];
    if (pool == NULL || /* or killed between two notes: the newer one counts */
        (pool->blob != 0 &&
         sl_index_version(self->index, blob) < sl_index_version(self->index, pool->blob))) {
        return SL_ERR_FOREIGN;
    }
    reg_pool_note_drop(self, pool);
    pool->blob = blob;
    pool_fill(pool, &note, (const unsigned char *)bytes + sizeof(note));
    return SL_OK;
}

/* ---- the part ---- */

static const struct reg_blob blobs[] = {
    {REG_BLOB_POOL, pool_restore},
};

const struct reg_part reg_pool_notes_part = {
    .name = "pool_notes",
    REG_BLOBS(blobs),
};
