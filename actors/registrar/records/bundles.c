/* actors/registrar/records/bundles.c - the members of each bundle.
 *
 * Rebuilt from the records. Members are values and reservations, by reference. A value for which no
 * memory is left is no member: it is evicted without its bundle. */
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/base/part.h"
#include "runtime/base/sl_array.h"

#include <stdlib.h>

#define MEMBERS_CHUNK 1024u /* allocated at a time */

/* False: no memory. */
static bool members_more(struct reg_bundles *all)
{
    struct reg_bundled *chunk = NULL;
    if (SL_ARRAY_ROOM(all->chunks, all->chunk_capacity, all->chunk_count + 1) &&
        sl_table_reserve(&all->by_bundle, all->by_bundle.count + MEMBERS_CHUNK) &&
        sl_table_reserve(&all->by_ref, all->by_ref.count + MEMBERS_CHUNK)) {
        chunk = calloc(MEMBERS_CHUNK, sizeof(*chunk));
    }
    if (chunk == NULL) {
        return false;
    }
    all->chunks[all->chunk_count++] = chunk;
    for (uint32_t i = 0; i < MEMBERS_CHUNK; i++) {
        chunk[i].free_next = all->free;
        all->free = &chunk[i];
    }
    return true;
}

static struct reg_bundled *member_find(const struct reg_bundles *all, sl_ref ref)
{
    return SL_TABLE_FIRST(&all->by_ref, sl_table_hash(ref), struct reg_bundled, by_ref);
}

void reg_bundle_join(struct registrar *self, uint64_t bundle, sl_ref ref, bool writing)
{
    struct reg_bundles *all = self->bundles;
    struct reg_bundled *member = bundle == 0 ? NULL : member_find(all, ref);
    if (member != NULL) { /* a reservation that became a value */
        member->writing = member->writing && writing;
    }
    if (bundle == 0 || member != NULL) {
        return;
    }
    if (all->free == NULL && !members_more(all)) {
        reg_log(self, SL_LOG_WARN, 0, "no memory for a bundle: a value of it is evicted by itself");
        return;
    }
    member = all->free;
    all->free = member->free_next;
    *member = (struct reg_bundled){.ref = ref, .writing = writing};
    sl_table_add(&all->by_bundle, &member->by_bundle, sl_table_hash(bundle));
    sl_table_add(&all->by_ref, &member->by_ref, sl_table_hash(ref));
}

static void member_leave(struct reg_bundles *all, struct reg_bundled *member)
{
    sl_table_remove(&all->by_bundle, &member->by_bundle);
    sl_table_remove(&all->by_ref, &member->by_ref);
    member->free_next = all->free;
    all->free = member;
}

void reg_bundle_leave(struct registrar *self, sl_ref ref)
{
    struct reg_bundled *member = member_find(self->bundles, ref);
    if (member != NULL) {
        member_leave(self->bundles, member);
    }
}

void reg_bundle_unreserve(struct registrar *self, sl_ref ref)
{
    struct reg_bundled *member = member_find(self->bundles, ref);
    if (member != NULL && member->writing) {
        member_leave(self->bundles, member);
    }
}

void reg_bundle_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    struct reg_bundled *member = member_find(self->bundles, old);
    if (member != NULL) {
        member->ref = fresh;
        sl_table_remove(&self->bundles->by_ref, &member->by_ref);
        sl_table_add(&self->bundles->by_ref, &member->by_ref, sl_table_hash(fresh));
    }
}

bool reg_bundle_members(struct registrar *self, uint64_t bundle, const sl_ref **refs,
                        uint32_t *count)
{
    struct reg_bundles *all = self->bundles;
    uint32_t found = 0;
    const struct reg_bundled *member =
        SL_TABLE_FIRST(&all->by_bundle, sl_table_hash(bundle), struct reg_bundled, by_bundle);
    for (; member != NULL; member = SL_TABLE_NEXT(member, struct reg_bundled, by_bundle)) {
        if (member->writing || !SL_ARRAY_ROOM(all->scratch, all->scratch_capacity, found + 1)) {
            return false;
        }
        all->scratch[found++] = member->ref;
    }
    *refs = all->scratch;
    *count = found;
    return true;
}

static void bundles_fini(struct registrar *self)
{
    for (uint32_t i = 0; i < self->bundles->chunk_count; i++) {
        free(self->bundles->chunks[i]);
    }
    free(self->bundles->chunks);
    sl_table_fini(&self->bundles->by_bundle);
    sl_table_fini(&self->bundles->by_ref);
    free(self->bundles->scratch);
}

/* ---- the part ---- */

const struct reg_part reg_bundles_part = {
    .name = "bundles",
    REG_STATE(bundles, reg_bundles),
    .fini = bundles_fini,
};
