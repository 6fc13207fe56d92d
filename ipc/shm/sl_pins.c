/* ipc/shm/sl_pins.c - pin slots, the ring of sampled accesses; a reader's side and the registrar's.
 *
 * Orders and partners:
 * - pin: slots_used and slot are stored (relaxed), fence (seq_cst), the entry's version is loaded.
 * The registrar unlinks, fences (seq_cst), loads slots_used and slots: of the two, at least one
 * sees the other's store;
 * - unpin: slot 0 (release) after the last read of the bytes; the scan loads slots with acquire, so
 * the bytes' next writer is ordered after those reads;
 * - end: ended is stored (release) after the last read; the registrar loads it with acquire;
 * - access ring: each entry carries the low half of its position, stored (release) after its
 * generation; the drain loads it (acquire), reads, fences (acquire), loads it again. */
#include "ipc/shm/sl_pins.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PINS_SLOTS_MAX    (1u << 20)
#define PINS_ACCESSES_MAX (1u << 20)
#define PINS_NONE         UINT32_MAX

/* The part of the header page for pins. Words that change have cache lines of their own. */
struct pins_header {
    struct sl_proc_id owner;
    uint32_t slot_count;
    uint32_t access_count;  /* power of two */
    _Atomic uint64_t ended; /* 1: the reader no longer uses anything of the node (sl_pins_end) */
    /* Of a client: its process, and the namespace of that pid. */
    struct sl_proc_id process;
    uint64_t space;
    uint64_t reserved0;
    _Atomic uint64_t slots_used; /* no slot from here on was ever used */
    uint64_t reserved1[7];
    _Atomic uint64_t access_position;
    uint64_t reserved2[7];
    _Atomic uint64_t pinned_bytes;
    uint64_t reserved3[7];
};
static_assert(sizeof(struct pins_header) == 256, "format of the pins header");

struct pins_access {
    _Atomic uint64_t generation;
    _Atomic uint64_t ref_and_position; /* ref, low 32 bits of position << 32 */
    _Atomic uint64_t said;
};

/* The data: slots, then accesses. */
static uint64_t pins_data_bytes(uint64_t slot_count, uint64_t access_count)
{
    return slot_count * sizeof(uint64_t) + access_count * sizeof(struct pins_access);
}

struct pins_slot {                /* private to the client */
    _Atomic uint64_t taken_bytes; /* of the pin, plus 1; 0: it is not taken */
    _Atomic uint32_t next;        /* free list */
};

struct sl_pins {
    struct sl_pins *next; /* list of this process's clients */
    struct sl_shm_file segment;
    struct pins_header *header;
    _Atomic uint64_t *slots;
    struct pins_access *accesses;
    struct pins_slot *private_slots;
    _Atomic uint64_t free_head; /* slot, count of changes << 32 (detects a head that returned) */
    uint32_t slot_count, access_count;
    uint64_t pinned_bytes_max;
    char directory[1024];
    char name[SL_PINS_NAME_BYTES];
};

void sl_client_name(struct sl_proc_id id, char out[SL_CLIENT_NAME_BYTES])
{
    (void)snprintf(out, SL_CLIENT_NAME_BYTES, "client.%u.%016" PRIx64, id.pid % 10000000,
                   id.start_time);
}

void sl_pins_name(const char *client, char out[SL_PINS_NAME_BYTES])
{
    (void)snprintf(out, SL_PINS_NAME_BYTES, "pins.%s", client);
}

/* ---- the client's side ---- */

/* Whether another process has locked it. */
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- forks: a fork must keep neither lock nor file, which would keep its parent's alive ---- */

static struct {
    pthread_mutex_t lock;
    struct sl_pins *first;
} clients = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void fork_begins(void)
{
    pthread_mutex_lock(&clients.lock);
}

static void fork_ends(void)
{
    pthread_mutex_unlock(&clients.lock);
}

/* Reads of its copy find zeros, and its recorded accesses are lost. */
static void fork_ends_in_child(void)
{
    for (struct sl_pins *at = clients.first; at != NULL; at = at->next) {
        (void)mmap(at->segment.header, at->segment.mapped_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        sl_shm_file_close_descriptor(&at->segment);
    }
    pthread_mutex_unlock(&clients.lock);
}

__attribute__((constructor)) static void clients_begin(void)
{
    (void)pthread_atfork(fork_begins, fork_ends, fork_ends_in_child);
}

/* The lock shows that the owner lives, before any process can find the file. The kernel releases it
 * at the end of the process; a fork does not have it. */
static sl_err pins_lock(struct sl_shm_file *segment, struct sl_error *why)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(segment->fd, F_SETLK, &whole) == 0 ? SL_OK
                                                    : sl_fail_os(why, errno, "lock a pin file");
}

/* Removes the file that an earlier life of this actor left under our name. */
static sl_err pins_remove_dead(const char *directory, const char *name, struct sl_error *why)
{
    SL_AUTO(close) int fd = -1;
    sl_err err = sl_shm_file_descriptor(directory, name, false, &fd, why);
    if (err == SL_OK && is_locked(fd)) {
        return sl_fail(why, SL_ERR_EXISTS, "pin file '%s' belongs to a living process", name);
    }
    err = err == SL_ERR_NOT_FOUND ? err : sl_shm_file_remove(directory, name, why);
    return err == SL_ERR_NOT_FOUND ? SL_OK : err;
}

static sl_err pins_make_segment(struct sl_pins *pins, const struct sl_pins_options *options,
                                struct sl_error *why)
{
    struct pins_header header = {.owner = options->self,
                                 .slot_count = options->slot_count,
                                 .access_count = options->access_count,
                                 .space = sl_proc_pid_namespace()};
    uint64_t data_bytes = pins_data_bytes(options->slot_count, options->access_count);
    struct sl_shm_file_want want = {.directory = pins->directory,
                                    .name = pins->name,
                                    .kind = SL_SHM_FILE_PINS,
                                    .data_bytes = data_bytes,
                                    .own = &header,
                                    .own_bytes = sizeof(header),
                                    .populate_bytes = data_bytes,
                                    .prepare = pins_lock};
    sl_err err = sl_proc_id_self(&header.process, why);
    if (err == SL_OK) {
        err = sl_shm_file_create(&want, &pins->segment, why);
    }
    if (err == SL_ERR_EXISTS) {
        err = pins_remove_dead(pins->directory, pins->name, why);
        if (err == SL_OK) {
            err = sl_shm_file_create(&want, &pins->segment, why);
        }
    }
    return err;
}

static sl_err pins_check_options(const struct sl_pins_options *options, struct sl_error *why)
{
    if (strlen(options->name) + sizeof("pins.") > SL_PINS_NAME_BYTES) {
        return sl_fail(why, SL_ERR_INVALID, "name '%.32s...' of a pin file is too long",
                       options->name);
    }
    if (options->slot_count == 0 || options->slot_count > PINS_SLOTS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%u pin slots, expected 1..%u", options->slot_count,
                       PINS_SLOTS_MAX);
    }
    if (options->access_count == 0 || options->access_count > PINS_ACCESSES_MAX ||
        (options->access_count & (options->access_count - 1)) != 0) {
        return sl_fail(why, SL_ERR_INVALID, "access ring of %u, expected a power of two up to %u",
                       options->access_count, PINS_ACCESSES_MAX);
    }
    return SL_OK;
}

static void pins_init_slots(struct sl_pins *pins)
{
    for (uint32_t i = 0; i < pins->slot_count; i++) {
        atomic_init(&pins->private_slots[i].next, i + 1 < pins->slot_count ? i + 1 : PINS_NONE);
    }
    atomic_init(&pins->free_head, 0);
    pins->header = sl_shm_file_own(&pins->segment);
    pins->slots = (_Atomic uint64_t *)(void *)pins->segment.data;
    pins->accesses = (struct pins_access *)(void *)(pins->segment.data +
                                                    (uint64_t)pins->slot_count * sizeof(uint64_t));
}

sl_err sl_pins_create(const struct sl_pins_options *options, struct sl_pins **out,
                      struct sl_error *why)
{
    sl_err err = pins_check_options(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_pins *pins = calloc(1, sizeof(*pins));
    if (pins == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "pins handle");
    }
    pins->segment.fd = -1;
    pins->slot_count = options->slot_count;
    pins->access_count = options->access_count;
    pins->pinned_bytes_max = options->pinned_bytes_max;
    pins->private_slots = calloc(options->slot_count, sizeof(*pins->private_slots));
    int length = snprintf(pins->directory, sizeof(pins->directory), "%s", options->shm_dir);
    if (pins->private_slots == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "%u pin slots", options->slot_count);
    } else if (length < 0 || length >= (int)sizeof(pins->directory)) {
        err = sl_fail(why, SL_ERR_INVALID, "path of the shared memory directory is too long");
    } else {
        sl_pins_name(options->name, pins->name);
        pthread_mutex_lock(&clients.lock); /* a fork must not have one that is not listed */
        err = pins_make_segment(pins, options, why);
        if (err == SL_OK && sl_proc_id_is_client(options->self)) {
            pins->next = clients.first;
            clients.first = pins;
        }
        pthread_mutex_unlock(&clients.lock);
    }
    if (err != SL_OK) {
        free(pins->private_slots);
        free(pins);
        return err;
    }
    pins_init_slots(pins);
    *out = pins;
    return SL_OK;
}

void sl_pins_unname(struct sl_pins *pins)
{
    /* Already removed, or of a newer life of the node: fine as well. */
    if (sl_shm_file_current(&pins->segment, pins->directory, pins->name) == SL_OK) {
        (void)sl_shm_file_remove(pins->directory, pins->name, NULL);
    }
}

void sl_pins_leave(struct sl_pins **pins)
{
    if (pins == NULL || *pins == NULL) {
        return;
    }
    pthread_mutex_lock(&clients.lock);
    struct sl_pins **link = &clients.first;
    while (*link != NULL && *link != *pins) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = (*pins)->next;
    }
    sl_shm_file_close(&(*pins)->segment);
    pthread_mutex_unlock(&clients.lock);
    free((*pins)->private_slots);
    free(*pins);
    *pins = NULL;
}

void sl_pins_end(struct sl_pins **pins)
{
    if (pins != NULL && *pins != NULL) {
        atomic_store_explicit(&(*pins)->header->ended, 1, memory_order_release);
    }
    sl_pins_leave(pins);
}

void sl_pins_destroy(struct sl_pins **pins)
{
    if (pins != NULL && *pins != NULL) {
        sl_pins_unname(*pins);
    }
    sl_pins_end(pins);
}

/* Lowest numbers first, so that the scan stays short. */
static uint32_t slot_pop(struct sl_pins *pins)
{
    uint64_t head = atomic_load_explicit(&pins->free_head, memory_order_acquire);
    for (;;) {
        uint32_t slot = (uint32_t)head;
        if (slot == PINS_NONE) {
            return PINS_NONE;
        }
        uint32_t next = atomic_load_explicit(&pins->private_slots[slot].next, memory_order_relaxed);
        uint64_t fresh = (uint64_t)((uint32_t)(head >> 32) + 1) << 32 | next;
        if (atomic_compare_exchange_weak_explicit(&pins->free_head, &head, fresh,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            return slot;
        }
    }
}

static void slot_push(struct sl_pins *pins, uint32_t slot)
{
    uint64_t head = atomic_load_explicit(&pins->free_head, memory_order_acquire);
    uint64_t fresh = 0;
    do {
        atomic_store_explicit(&pins->private_slots[slot].next, (uint32_t)head,
                              memory_order_relaxed);
        fresh = (uint64_t)((uint32_t)(head >> 32) + 1) << 32 | slot;
    } while (!atomic_compare_exchange_weak_explicit(&pins->free_head, &head, fresh,
                                                    memory_order_acq_rel, memory_order_acquire));
}

static bool bytes_charge(struct sl_pins *pins, uint64_t length_bytes)
{
    uint64_t pinned = atomic_load_explicit(&pins->header->pinned_bytes, memory_order_relaxed);
    do {
        if (length_bytes > pins->pinned_bytes_max ||
            pinned > pins->pinned_bytes_max - length_bytes) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&pins->header->pinned_bytes, &pinned,
                                                    pinned + length_bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static void slot_note_used(struct sl_pins *pins, uint32_t slot)
{
    uint64_t used = atomic_load_explicit(&pins->header->slots_used, memory_order_relaxed);
    while (used <= slot && !atomic_compare_exchange_weak_explicit(
                               &pins->header->slots_used, &used, (uint64_t)slot + 1,
                               memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Stores the generation in a slot; the caller must check the entry again afterwards. */
static sl_err pin_set(struct sl_pins *pins, uint64_t generation, uint64_t length_bytes, sl_pin *pin)
{
    if (!bytes_charge(pins, length_bytes)) {
        return SL_ERR_LIMIT;
    }
    uint32_t slot = slot_pop(pins);
    if (slot == PINS_NONE) {
        atomic_fetch_sub_explicit(&pins->header->pinned_bytes, length_bytes, memory_order_relaxed);
        return SL_ERR_LIMIT;
    }
    atomic_store_explicit(&pins->private_slots[slot].taken_bytes, length_bytes + 1,
                          memory_order_relaxed);
    slot_note_used(pins, slot);
    atomic_store_explicit(&pins->slots[slot], generation, memory_order_relaxed);
    /* Either the registrar's scan sees the pin, or its unlink is seen here; nothing weaker orders a
     * store before a load. */
    atomic_thread_fence(memory_order_seq_cst);
    *pin = slot + 1;
    return SL_OK;
}

/* Gives out a pin if its entry still exists. */
static sl_err pin_keep(struct sl_pins *pins, sl_pin set, bool stands, sl_pin *pin)
{
    if (!stands) {
        sl_pins_release(pins, set);
        return SL_ERR_STALE;
    }
    *pin = set;
    return SL_OK;
}

sl_err sl_pins_take(struct sl_pins *pins, const struct sl_index_view *view,
                    const struct sl_entry *entry, sl_pin *pin)
{
    sl_pin set = 0;
    if (entry->extent.generation == 0) {
        return SL_ERR_NOT_FOUND;
    }
    sl_err err = pin_set(pins, entry->extent.generation, entry->extent.length_bytes, &set);
    return err == SL_OK ? pin_keep(pins, set, sl_index_unchanged(view, entry), pin) : err;
}

sl_err sl_pins_take_grant(struct sl_pins *pins, const struct sl_index_view *view, sl_ref ref,
                          uint64_t generation, uint64_t length_bytes, sl_pin *pin)
{
    sl_pin set = 0;
    sl_err err = pin_set(pins, generation, length_bytes, &set);
    return err == SL_OK ? pin_keep(pins, set, sl_index_claim_exists(view, ref, generation), pin)
                        : err;
}

void sl_pins_release(struct sl_pins *pins, sl_pin pin)
{
    if (pin == 0) {
        return;
    }
    uint32_t slot = pin - 1;
    SL_ASSERT(slot < pins->slot_count);
    _Atomic uint64_t *taken = &pins->private_slots[slot].taken_bytes;
    uint64_t taken_bytes = atomic_load_explicit(taken, memory_order_relaxed);
    SL_ASSERT(taken_bytes != 0); /* released twice */
    atomic_store_explicit(taken, 0, memory_order_relaxed);
    atomic_store_explicit(&pins->slots[slot], 0, memory_order_release);
    atomic_fetch_sub_explicit(&pins->header->pinned_bytes, taken_bytes - 1, memory_order_relaxed);
    slot_push(pins, slot);
}

bool sl_pins_is_cut(const struct sl_pins *pins)
{
    return sl_shm_file_is_cut(&pins->segment);
}

bool sl_pins_any(const struct sl_pins *pins)
{
    bool any = false;
    for (uint32_t i = 0; pins != NULL && i < pins->slot_count && !any; i++) {
        any = atomic_load_explicit(&pins->private_slots[i].taken_bytes, memory_order_relaxed) != 0;
    }
    return any;
}

#define SAID_KINDS  3u /* values of sessions and of priorities besides 0 */
#define SAID_KEEP_S (SL_KEEP_NS_MAX / SL_NS_PER_S)
static_assert(SAID_KEEP_S < UINT32_C(1) << 27, "a time has 27 bits");

uint32_t sl_packed_hints_pack(const struct sl_packed_hints *said)
{
    uint64_t keep_s = said->keep_ns / SL_NS_PER_S + (said->keep_ns % SL_NS_PER_S != 0 ? 1 : 0);
    return SL_MIN(said->session, SAID_KINDS) | SL_MIN(said->priority, SAID_KINDS) << 2 |
           (uint32_t)SL_MIN(keep_s, SAID_KEEP_S) << 4;
}

void sl_packed_hints_unpack(uint32_t packed, struct sl_packed_hints *out)
{
    uint32_t session = packed & 3u;
    *out = (struct sl_packed_hints){.session = session <= 2 ? session : 0,
                                    .priority = packed >> 2 & 3u,
                                    .keep_ns = SL_MIN((packed & ~SL_SAID_ALONE) >> 4, SAID_KEEP_S) *
                                               SL_NS_PER_S};
}

void sl_pins_note_access(struct sl_pins *pins, sl_ref ref, uint64_t generation)
{
    sl_pins_note_hints(pins, ref, generation, 0);
}

void sl_pins_note_hints(struct sl_pins *pins, sl_ref ref, uint64_t generation, uint32_t said)
{
    uint64_t position =
        atomic_fetch_add_explicit(&pins->header->access_position, 1, memory_order_relaxed);
    struct pins_access *access = &pins->accesses[position & (pins->access_count - 1)];
    /* No longer this entry, and not yet the next one: the position half shows that while the two
     * words change. */
    atomic_store_explicit(&access->ref_and_position, (position ^ UINT64_C(0x80000000)) << 32,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&access->generation, generation, memory_order_relaxed);
    atomic_store_explicit(&access->said, said, memory_order_relaxed);
    atomic_store_explicit(&access->ref_and_position, position << 32 | ref, memory_order_release);
}

uint64_t sl_pins_pinned_bytes(const struct sl_pins *pins)
{
    return atomic_load_explicit(&pins->header->pinned_bytes, memory_order_relaxed);
}

/* ---- the registrar's side ---- */

struct sl_pins_view {
    struct sl_shm_file segment;
    struct pins_header *header;
    _Atomic uint64_t *slots;
    struct pins_access *accesses;
    struct sl_proc_id owner; /* copies, checked once */
    uint32_t slot_count, access_count;
    uint64_t drained_position;
    uint64_t lost_count;
    bool resumed; /* and not drained since */
};

static sl_err pins_view_adopt(struct sl_pins_view *view, const char *name, struct sl_error *why)
{
    view->header = sl_shm_file_own(&view->segment);
    view->owner = view->header->owner;
    view->slot_count = view->header->slot_count;
    view->access_count = view->header->access_count;
    if (view->slot_count == 0 || view->slot_count > PINS_SLOTS_MAX || view->access_count == 0 ||
        view->access_count > PINS_ACCESSES_MAX ||
        (view->access_count & (view->access_count - 1)) != 0 ||
        pins_data_bytes(view->slot_count, view->access_count) > view->segment.data_bytes) {
        return sl_fail(why, SL_ERR_CORRUPT,
                       "pin file '%s': %u slots and %u accesses in %" PRIu64 " bytes", name,
                       view->slot_count, view->access_count, view->segment.data_bytes);
    }
    view->slots = (_Atomic uint64_t *)(void *)view->segment.data;
    view->accesses = (struct pins_access *)(void *)(view->segment.data +
                                                    (uint64_t)view->slot_count * sizeof(uint64_t));
    return SL_OK;
}

sl_err sl_pins_view_open(const char *shm_dir, const char *name, struct sl_pins_view **out,
                         struct sl_error *why)
{
    struct sl_pins_view *view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "view of pin file '%s'", name);
    }
    view->segment.fd = -1;
    struct sl_shm_file_want want = {.directory = shm_dir, .name = name, .kind = SL_SHM_FILE_PINS};
    sl_err err = sl_shm_file_open(&want, false, &view->segment, why);
    if (err == SL_OK) {
        err = pins_view_adopt(view, name, why);
    }
    if (err != SL_OK) {
        sl_pins_view_close(&view);
        return err;
    }
    *out = view;
    return SL_OK;
}

bool sl_pins_view_is_short(const struct sl_pins_view *view)
{
    return sl_shm_file_is_short(&view->segment);
}

bool sl_pins_view_ended(const struct sl_pins_view *view)
{
    return atomic_load_explicit(&view->header->ended, memory_order_acquire) == 1;
}

bool sl_pins_view_linked(const struct sl_pins_view *view)
{
    return sl_shm_file_linked(&view->segment);
}

void sl_pins_view_close(struct sl_pins_view **view)
{
    if (view == NULL || *view == NULL) {
        return;
    }
    sl_shm_file_close(&(*view)->segment);
    free(*view);
    *view = NULL;
}

void sl_pins_view_scan(const struct sl_pins_view *view,
                       void (*each)(void *context, uint64_t generation), void *context)
{
    uint64_t used = atomic_load_explicit(&view->header->slots_used, memory_order_acquire);
    uint32_t slot_count = (uint32_t)SL_MIN(used, view->slot_count);
    for (uint32_t i = 0; i < slot_count; i++) {
        uint64_t generation = atomic_load_explicit(&view->slots[i], memory_order_acquire);
        if (generation != 0) {
            each(context, generation);
        }
    }
}

/* False: overwritten or not complete yet. */
static bool access_read(const struct sl_pins_view *view, uint64_t position, struct sl_access *out)
{
    struct pins_access *access = &view->accesses[position & (view->access_count - 1)];
    uint64_t tag = atomic_load_explicit(&access->ref_and_position, memory_order_acquire);
    uint64_t generation = atomic_load_explicit(&access->generation, memory_order_relaxed);
    uint64_t said = atomic_load_explicit(&access->said, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (tag >> 32 != (position & UINT32_MAX) ||
        atomic_load_explicit(&access->ref_and_position, memory_order_relaxed) != tag) {
        return false;
    }
    *out = (struct sl_access){.generation = generation, .ref = (sl_ref)tag, .said = (uint32_t)said};
    return true;
}

uint32_t sl_pins_view_drain(struct sl_pins_view *view, struct sl_access *out, uint32_t max)
{
    uint64_t end = atomic_load_explicit(&view->header->access_position, memory_order_acquire);
    uint64_t from = view->drained_position;
    uint32_t count = 0;
    if (end < from || end - from > view->access_count) {
        uint64_t oldest = end > view->access_count ? end - view->access_count : 0;
        view->lost_count += oldest > from && !view->resumed ? oldest - from : 0;
        from = oldest;
    }
    for (; from < end && count < max; from++) {
        if (access_read(view, from, &out[count])) {
            count++;
        } else {
            view->lost_count++;
        }
    }
    view->drained_position = from;
    view->resumed = false;
    return count;
}

void sl_pins_view_resume(struct sl_pins_view *view)
{
    view->resumed = true;
}

uint64_t sl_pins_view_lost(const struct sl_pins_view *view)
{
    return view->lost_count;
}

/* ---- whether a client is alive ---- */

/* Whether a process may have the file open or mapped for writing, which only its client (and a fork
 * of it) does: then no read lease is granted. A system without leases cannot tell, nor can any file
 * system but tmpfs: an overlay grants them even if the file is mapped. */
static bool is_written(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC ||
           fcntl(fd, F_SETLEASE, F_RDLCK) != 0 || fcntl(fd, F_SETLEASE, F_UNLCK) != 0;
}

/* A free lock means dead. But a living client may have lost it by mistake: it closed all its
 * descriptors, or opened the file once more and closed that. Then its mapping shows that it lives;
 * a process that runs another program no longer has it. If that cannot be determined, a process
 * that is visible counts as alive. */
static enum sl_client_state life_unlocked(int fd, struct sl_proc_id id)
{
    struct pins_header header;
    if (pread(fd, &header, sizeof(header), SL_SHM_FILE_OWN_OFFSET_BYTES) !=
            (ssize_t)sizeof(header) ||
        !sl_proc_id_equal(header.owner, id) || header.ended != 0) {
        return SL_CLIENT_GONE;
    }
    bool seen = header.space == sl_proc_pid_namespace() && header.space != 0;
    return (!seen || sl_proc_alive(header.process)) && is_written(fd) ? SL_CLIENT_UNLOCKED
                                                                      : SL_CLIENT_GONE;
}

enum sl_client_state sl_client_state(const char *shm_dir, struct sl_proc_id id, int *fd)
{
    char client[SL_CLIENT_NAME_BYTES], name[SL_PINS_NAME_BYTES];
    int fresh = -1;
    if (*fd >= 0 && is_locked(*fd)) {
        return SL_CLIENT_LIVES;
    }
    sl_client_name(id, client);
    sl_pins_name(client, name);
    sl_err err = sl_shm_file_descriptor(shm_dir, name, false, &fresh, NULL);
    if (err == SL_ERR_NOT_FOUND || err == SL_ERR_FOREIGN) {
        return SL_CLIENT_GONE;
    }
    if (err != SL_OK) { /* no descriptor is left, or similar */
        return SL_CLIENT_LIVES;
    }
    sl_auto_close(fd); /* it may be the file of an earlier life of the node */
    *fd = fresh;
    return is_locked(fresh) ? SL_CLIENT_LIVES : life_unlocked(fresh, id);
}

void sl_pins_clients(const char *shm_dir, void (*each)(void *context, struct sl_proc_id client),
                     void *context)
{
    SL_AUTO(closedir) DIR *all = opendir(shm_dir);
    for (const struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        struct sl_proc_id client = {0};
        char name[SL_CLIENT_NAME_BYTES];
        /* NOLINTNEXTLINE(cert-err34-c): a number that does not fit makes another name */
        if (sscanf(entry->d_name, "pins.client.%" SCNu32 ".%" SCNx64, &client.pid,
                   &client.start_time) == 2) {
            sl_client_name(client, name);
            if (strcmp(entry->d_name + sizeof("pins.") - 1, name) == 0) {
                each(context, client);
            }
        }
    }
}

struct sl_proc_id sl_pins_view_owner(const struct sl_pins_view *view)
{
    return view->owner;
}
