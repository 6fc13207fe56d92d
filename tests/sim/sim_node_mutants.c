/* tests/sim/sim_node_mutants.c - see the header. The linker directs calls between files here
 * (--wrap); without a mutant they pass through unchanged. */
#include "tests/sim/sim_node_mutants.h"

#include "actors/registrar/disk/remove.h"
#include "actors/registrar/disk/tombstones.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/units.h"
#include "client/tools/supervise/hang.h"
#include "tests/sim/sim.h"
#include "tests/support/mem_disk.h"

#include <stdlib.h>
#include <string.h>

enum mutant {
    MUTANT_NONE,
    CLAIM_UNFENCED,
    TOMBSTONE_UNAWAITED,
    TOMBSTONE_LOST,
    REPLACED_BEFORE,
    PINS_UNSEEN,
    REMOVED_TWICE,
    COMMITTED_TWICE,
    EVICTED_UNWRITTEN,
    GET_UNCHECKED,
    NAMES_UNSYNCED,
    MUTANTS,
    HANGS_AT_ONCE = MUTANTS, /* from here on: for a supervised node (--heal) */
    HANGS_UNSEEN,
    ALL
};
static const struct sim_mutant mutants[MUTANTS] = {
    [CLAIM_UNFENCED] = {4, "an extent whose claim expired is free at once: its fence is lost"},
    [TOMBSTONE_UNAWAITED] = {11, "a removal is answered before its tombstones are durable"},
    [TOMBSTONE_LOST] = {7, "a removal leaves no tombstone"},
    [REPLACED_BEFORE] = {0, "the old value is removed before the new one is visible"},
    [PINS_UNSEEN] = {0, "what was retired is free although it is pinned"},
    [REMOVED_TWICE] = {443, "a removal that is sent again is carried out again"},
    [COMMITTED_TWICE] = {22, "a commit that is sent again to another registrar is stale"},
    [EVICTED_UNWRITTEN] = {9, "values leave memory before a disk has them"},
    [GET_UNCHECKED] = {19, "a get does not check whether the copied entry is still valid"},
    [NAMES_UNSYNCED] = {18, "a disk's directory is never synced"},
};
static const struct sim_mutant heal_mutants[ALL - MUTANTS + 1] = {
    [HANGS_AT_ONCE - MUTANTS + 1] = {7, "who is silent at one look hangs"},
    [HANGS_UNSEEN - MUTANTS + 1] = {6, "nobody hangs"},
};
static enum mutant mutant; /* of this process */
#define KNOWN_MAX 65536u
static uint64_t known[KNOWN_MAX]; /* to the living registrar: COMMITTED_TWICE */

void sim_node_mutants_init(bool heal)
{
    uint32_t number = sim_mutant_number(heal ? SL_COUNT(heal_mutants) : MUTANTS);
    mutant = (enum mutant)(heal && number > 0 ? MUTANTS + number - 1 : number);
    sim_copies_unchecked = mutant == GET_UNCHECKED;
}

int sim_node_mutants_main(const struct sim_seeds *seeds, const struct sim_seeds *heals)
{
    int missed = sim_mutants_find(seeds, NULL, mutants, MUTANTS);
    int healed = sim_mutants_find(heals, NULL, heal_mutants, SL_COUNT(heal_mutants));
    return missed != EXIT_SUCCESS ? missed : healed;
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

void REAL(reg_claim_quarantine)(struct registrar *self, uint32_t slot);
void __wrap_reg_claim_quarantine(struct registrar *self, uint32_t slot);
void __wrap_reg_claim_quarantine(struct registrar *self, uint32_t slot)
{
    if (mutant == CLAIM_UNFENCED) {
        reg_claim_release(self, slot);
        return;
    }
    REAL(reg_claim_quarantine)(self, slot);
}

void REAL(reg_remove_wait)(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void __wrap_reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void __wrap_reg_remove_wait(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk)
{
    if (mutant != TOMBSTONE_UNAWAITED) {
        REAL(reg_remove_wait)(self, id, index, disk);
    }
}

void REAL(reg_remove_done)(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void __wrap_reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk);
void __wrap_reg_remove_done(struct registrar *self, uint64_t id, uint32_t index, uint32_t disk)
{
    if (mutant != TOMBSTONE_UNAWAITED) {
        REAL(reg_remove_done)(self, id, index, disk);
    }
}

void REAL(reg_tombstone_add)(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                             const struct sl_disk_place *place, const struct reg_drop *how);
void __wrap_reg_tombstone_add(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                              const struct sl_disk_place *place, const struct reg_drop *how);
void __wrap_reg_tombstone_add(struct registrar *self, struct sl_key key, uint64_t length_bytes,
                              const struct sl_disk_place *place, const struct reg_drop *how)
{
    if (mutant != TOMBSTONE_LOST) {
        REAL(reg_tombstone_add)(self, key, length_bytes, place, how);
    }
}

/* The writer gets SL_ERR_BUSY and repeats its call; meanwhile the key has no value. */
sl_err REAL(reg_object_replace)(struct registrar *self, sl_ref old, sl_ref ref,
                                struct sl_digest digest, const struct reg_drop *how);
sl_err __wrap_reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref,
                                 struct sl_digest digest, const struct reg_drop *how);
sl_err __wrap_reg_object_replace(struct registrar *self, sl_ref old, sl_ref ref,
                                 struct sl_digest digest, const struct reg_drop *how)
{
    if (mutant == REPLACED_BEFORE) {
        (void)reg_unit_drop(self, old, how);
        return SL_ERR_BUSY;
    }
    return REAL(reg_object_replace)(self, old, ref, digest, how);
}

void REAL(sl_pins_view_scan)(const struct sl_pins_view *view,
                             void (*each)(void *context, uint64_t generation), void *context);
void __wrap_sl_pins_view_scan(const struct sl_pins_view *view,
                              void (*each)(void *context, uint64_t generation), void *context);
void __wrap_sl_pins_view_scan(const struct sl_pins_view *view,
                              void (*each)(void *context, uint64_t generation), void *context)
{
    if (mutant != PINS_UNSEEN) {
        REAL(sl_pins_view_scan)(view, each, context);
    }
}

bool REAL(sl_settled_removed)(const struct sl_settled *settled, uint64_t id,
                              enum sl_settled_end *end);
bool __wrap_sl_settled_removed(const struct sl_settled *settled, uint64_t id,
                               enum sl_settled_end *end);
bool __wrap_sl_settled_removed(const struct sl_settled *settled, uint64_t id,
                               enum sl_settled_end *end)
{
    return mutant != REMOVED_TWICE && REAL(sl_settled_removed)(settled, id, end);
}

sl_err REAL(sl_settled_open)(const char *shm_dir, struct sl_settled **out, struct sl_error *why);
sl_err __wrap_sl_settled_open(const char *shm_dir, struct sl_settled **out, struct sl_error *why);
sl_err __wrap_sl_settled_open(const char *shm_dir, struct sl_settled **out, struct sl_error *why)
{
    memset(known, 0, sizeof(known)); /* a new registrar */
    return REAL(sl_settled_open)(shm_dir, out, why);
}

/* The values that this registrar committed, and those that it found in the index, are known. */
void REAL(sl_settled_commit)(struct sl_settled *settled, uint64_t generation, uint64_t key_hash);
void __wrap_sl_settled_commit(struct sl_settled *settled, uint64_t generation, uint64_t key_hash);
void __wrap_sl_settled_commit(struct sl_settled *settled, uint64_t generation, uint64_t key_hash)
{
    known[generation % KNOWN_MAX] = generation;
    REAL(sl_settled_commit)(settled, generation, key_hash);
}

bool REAL(sl_settled_committed)(const struct sl_settled *settled, uint64_t generation,
                                uint64_t *key_hash);
bool __wrap_sl_settled_committed(const struct sl_settled *settled, uint64_t generation,
                                 uint64_t *key_hash);
bool __wrap_sl_settled_committed(const struct sl_settled *settled, uint64_t generation,
                                 uint64_t *key_hash)
{
    return (mutant != COMMITTED_TWICE || known[generation % KNOWN_MAX] == generation) &&
           REAL(sl_settled_committed)(settled, generation, key_hash);
}

void REAL(mem_disk_names_sync)(struct mem_disk *disk);
void __wrap_mem_disk_names_sync(struct mem_disk *disk);
void __wrap_mem_disk_names_sync(struct mem_disk *disk)
{
    if (mutant != NAMES_UNSYNCED) {
        REAL(mem_disk_names_sync)(disk);
    }
}

enum sup_verdict REAL(sup_hang_look)(struct sup_hang *hang, const struct sup_seen *seen,
                                     uint64_t now_ns);
enum sup_verdict __wrap_sup_hang_look(struct sup_hang *hang, const struct sup_seen *seen,
                                      uint64_t now_ns);
enum sup_verdict __wrap_sup_hang_look(struct sup_hang *hang, const struct sup_seen *seen,
                                      uint64_t now_ns)
{
    enum sup_verdict verdict = REAL(sup_hang_look)(hang, seen, now_ns);
    if (mutant == HANGS_AT_ONCE && now_ns > seen->beat_ns + SUP_HANG_NS) {
        return SUP_SILENT;
    }
    return mutant == HANGS_UNSEEN ? SUP_FINE : verdict;
}

bool REAL(reg_copy_required)(const struct registrar *self);
bool __wrap_reg_copy_required(const struct registrar *self);
bool __wrap_reg_copy_required(const struct registrar *self)
{
    return mutant != EVICTED_UNWRITTEN && REAL(reg_copy_required)(self);
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
