/* actors/registrar/records/bundles.c - which values belong to which bundle.
 *
 * Rebuilt from the records. Members are values in the table and reservations, by reference; two
 * hash tables of chains find them by bundle and by reference. A value that there is no memory to
 * remember stands alone: it is evicted without its bundle. */
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/base/part.h"

#include <stdlib.h>

#define MEMBERS_FIRST 1024u
#define MEMBERS_MAX   (1u << 31)

static uint32_t *bundle_head(const struct reg_bundles *all, uint64_t bundle)
{
    return &all->bundle_heads[bundle >> 16 & all->heads_mask];
}

static uint32_t *ref_head(const struct reg_bundles *all, sl_ref ref)
{
    return &all->ref_heads[(ref * UINT32_C(0x9e3779b1)) >> 4 & all->heads_mask];
}

static void member_link(struct reg_bundles *all, uint32_t at)
{
    struct reg_bundled *member = &all->members[at];
    uint32_t *head = bundle_head(all, member->bundle);
    member->previous = REG_NONE;
    member->next = *head;
    if (*head != REG_NONE) {
        all->members[*head].previous = at;
    }
    *head = at;
    head = ref_head(all, member->ref);
    member->ref_next = *head;
    *head = at;
}

static bool heads_grow(struct reg_bundles *all, uint32_t heads)
{
    uint32_t *by_bundle = malloc(heads * sizeof(*by_bundle));
    uint32_t *by_ref = malloc(heads * sizeof(*by_ref));
    if (by_bundle == NULL || by_ref == NULL) {
        free(by_bundle);
        free(by_ref);
        return false;
    }
    for (uint32_t i = 0; i < heads; i++) {
        by_bundle[i] = REG_NONE;
        by_ref[i] = REG_NONE;
    }
    free(all->bundle_heads);
    free(all->ref_heads);
    all->bundle_heads = by_bundle;
    all->ref_heads = by_ref;
    all->heads_mask = heads - 1;
    for (uint32_t i = 0; i < all->high; i++) {
        if (all->members[i].ref != 0) {
            member_link(all, i);
        }
    }
    return true;
}

static bool members_grow(struct reg_bundles *all)
{
    if (all->capacity >= MEMBERS_MAX / 2) {
        return false;
    }
    uint32_t capacity = SL_MAX(all->capacity * 2, MEMBERS_FIRST);
    struct reg_bundled *members = realloc(all->members, capacity * sizeof(*members));
    if (members == NULL) {
        return false;
    }
    all->members = members;
    if (!heads_grow(all, capacity)) {
        return false;
    }
    all->capacity = capacity;
    return true;
}

static uint32_t member_find(const struct reg_bundles *all, sl_ref ref)
{
    uint32_t at = all->count == 0 ? REG_NONE : *ref_head(all, ref);
    while (at != REG_NONE && all->members[at].ref != ref) {
        at = all->members[at].ref_next;
    }
    return at;
}

void reg_bundle_join(struct registrar *self, uint64_t bundle, sl_ref ref, bool writing)
{
    struct reg_bundles *all = self->bundles;
    uint32_t at = bundle == 0 ? REG_NONE : member_find(all, ref);
    if (at != REG_NONE) { /* a reservation that became a value */
        all->members[at].writing = all->members[at].writing && writing;
    }
    if (bundle == 0 || at != REG_NONE) {
        return;
    }
    at = all->count == all->high ? REG_NONE : all->free;
    if (at != REG_NONE) {
        all->free = all->members[at].next;
    } else if (all->high < all->capacity || members_grow(all)) {
        at = all->high++;
    } else {
        reg_log(self, SL_LOG_WARN, 0, "no memory for a bundle: a value of it stands alone");
        return;
    }
    all->members[at] = (struct reg_bundled){.bundle = bundle, .ref = ref, .writing = writing};
    all->count++;
    member_link(all, at);
}

static void ref_unlink(struct reg_bundles *all, uint32_t at)
{
    uint32_t *link = ref_head(all, all->members[at].ref);
    while (*link != at) {
        link = &all->members[*link].ref_next;
    }
    *link = all->members[at].ref_next;
}

void reg_bundle_leave(struct registrar *self, sl_ref ref)
{
    struct reg_bundles *all = self->bundles;
    uint32_t at = member_find(all, ref);
    if (at == REG_NONE) {
        return;
    }
    struct reg_bundled *member = &all->members[at];
    ref_unlink(all, at);
    if (member->next != REG_NONE) {
        all->members[member->next].previous = member->previous;
    }
    if (member->previous != REG_NONE) {
        all->members[member->previous].next = member->next;
    } else {
        *bundle_head(all, member->bundle) = member->next;
    }
    *member = (struct reg_bundled){.next = all->count == all->high ? REG_NONE : all->free};
    all->free = at;
    all->count--;
}

void reg_bundle_unreserve(struct registrar *self, sl_ref ref)
{
    uint32_t at = member_find(self->bundles, ref);
    if (at != REG_NONE && self->bundles->members[at].writing) {
        reg_bundle_leave(self, ref);
    }
}

void reg_bundle_renamed(struct registrar *self, sl_ref old, sl_ref fresh)
{
    struct reg_bundles *all = self->bundles;
    uint32_t at = member_find(all, old);
    if (at != REG_NONE) {
        ref_unlink(all, at);
        all->members[at].ref = fresh;
        uint32_t *head = ref_head(all, fresh);
        all->members[at].ref_next = *head;
        *head = at;
    }
}

bool reg_bundle_members(struct registrar *self, uint64_t bundle, const sl_ref **refs,
                        uint32_t *count)
{
    struct reg_bundles *all = self->bundles;
    uint32_t found = 0;
    uint32_t at = all->count == 0 ? REG_NONE : *bundle_head(all, bundle);
    for (; at != REG_NONE; at = all->members[at].next) {
        const struct reg_bundled *member = &all->members[at];
        if (member->bundle != bundle) {
            continue;
        }
        if (member->writing) {
            return false;
        }
        if (found == all->scratch_capacity) {
            uint32_t capacity = SL_MAX(all->scratch_capacity * 2, 64u);
            sl_ref *grown = realloc(all->scratch, capacity * sizeof(*grown));
            if (grown == NULL) {
                return false;
            }
            all->scratch = grown;
            all->scratch_capacity = capacity;
        }
        all->scratch[found++] = member->ref;
    }
    *refs = all->scratch;
    *count = found;
    return true;
}

static void bundles_fini(struct registrar *self)
{
    free(self->bundles->members);
    free(self->bundles->bundle_heads);
    free(self->bundles->ref_heads);
    free(self->bundles->scratch);
}

/* ---- the part ---- */

const struct reg_part reg_bundles_part = {
    .name = "bundles",
    REG_STATE(bundles, reg_bundles),
    .fini = bundles_fini,
};
