/* tests/unit/ipc/shm/pins_test.c - pinned bytes do not change; limits; the access ring; leftovers
 * of the dead. */
#include "ipc/shm/sl_pins.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define INDEX_BYTES (2 * SL_MIB)
#define FORKS       100

static struct sl_pins *pins_in(const char *dir, uint32_t slots, uint64_t bytes_max)
{
    struct sl_pins_options options = {.shm_dir = dir,
                                      .name = "client",
                                      .slot_count = slots,
                                      .access_count = 8,
                                      .self = own_id(),
                                      .pinned_bytes_max = bytes_max};
    struct sl_pins *pins = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_create(&options, &pins, &why), why);
    return pins;
}

struct seen {
    uint64_t generations[64];
    uint32_t count;
};

static void see(void *context, uint64_t generation)
{
    struct seen *seen = context;
    ck_assert_uint_lt(seen->count, SL_COUNT(seen->generations));
    seen->generations[seen->count++] = generation;
}

static struct sl_pins_view *view_of(const char *dir)
{
    struct sl_pins_view *view = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_view_open(dir, "pins.client", &view, &why),
                    why); /* the short name is the same */
    return view;
}

START_TEST(pin_is_seen_until_it_is_given_back)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 16, SL_GIB);
        struct sl_pins_view *view = view_of(bed.dir);
        struct sl_entry entry;
        struct seen seen = {.count = 0};
        sl_pin pin = 0;
        bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_OK);

        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_uint_eq(seen.generations[0], 1001);
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 4001);
        ck_assert(sl_proc_id_equal(sl_pins_view_owner(view), own_id()));

        sl_pins_release(pins, pin);
        sl_pins_release(pins, 0); /* none */

        seen.count = 0;
        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0);
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(entry_that_changed_is_stale)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 16, SL_GIB);
        struct sl_entry entry;
        struct sl_extent none = {0};
        struct seen seen = {.count = 0};
        sl_pin pin = 0;
        sl_ref ref = bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);
        ck_assert_int_eq(sl_index_switch(bed.index, ref, NULL, NULL, &ref), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_STALE);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_OK);
        sl_pins_release(pins, pin);
        sl_index_unlink(bed.index, ref, SL_RECORD_RETIRED);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_STALE);
        ref = bed_insert(&bed, "key", 2);
        ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, NULL, &ref), SL_OK);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_NOT_FOUND);

        struct sl_pins_view *view = view_of(bed.dir);
        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0); /* failed pins leave nothing */
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(slots_and_bytes_are_bounded)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 2, 3 * 4001);
        struct sl_entry entry;
        sl_pin pins_taken[3] = {0};
        bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[2]),
                         SL_ERR_LIMIT); /* slots */
        sl_pins_release(pins, pins_taken[0]);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        sl_pins_destroy(&pins);

        pins = pins_in(bed.dir, 8, 2 * 4001 - 1);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]),
                         SL_ERR_LIMIT); /* bytes */
        sl_pins_release(pins, pins_taken[0]);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        entry.extent.length_bytes = UINT64_MAX; /* nothing wraps */
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]), SL_ERR_LIMIT);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(accesses_are_drained_in_order_and_the_oldest_are_lost)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = pins_in(dir, 2, SL_GIB);
        struct sl_pins_view *view = view_of(dir);
        struct sl_access out[16];
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 0);
        for (uint32_t i = 0; i < 3; i++) {
            sl_pins_note_access(pins, 10 + i, 100 + i);
        }

        ck_assert_uint_eq(sl_pins_view_drain(view, out, 2), 2);

        ck_assert_uint_eq(out[0].ref, 10);
        ck_assert_uint_eq(out[1].generation, 101);
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 1);
        ck_assert_uint_eq(out[0].ref, 12);
        for (uint32_t i = 0; i < 30; i++) {
            sl_pins_note_access(pins, i, i);
        }
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 8); /* the ring's size */
        ck_assert_uint_eq(out[0].ref, 22);
        ck_assert_uint_eq(out[7].ref, 29);
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(each_view_drains_all_accesses_and_knows_a_name_that_is_gone)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = pins_in(dir, 2, SL_GIB);
        struct sl_pins_view *views[] = {view_of(dir), view_of(dir)};
        struct sl_access out[16];
        for (uint32_t i = 0; i < 9; i++) {
            sl_pins_note_access(pins, 10 + i, 100 + i);
        }

        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_eq(sl_pins_view_drain(views[i], out, 16), 8);
            ck_assert_uint_eq(out[0].ref, 11);
            ck_assert_uint_eq(sl_pins_view_lost(views[i]), 1);
            ck_assert(sl_pins_view_linked(views[i]));
        }

        sl_pins_note_access(pins, 30, 300);
        sl_pins_destroy(&pins);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert(!sl_pins_view_linked(views[i]));
            ck_assert_uint_eq(sl_pins_view_drain(views[i], out, 16), 1); /* what came last */
            sl_pins_view_close(&views[i]);
        }
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(what_is_said_with_an_access_arrives_within_its_bounds)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = pins_in(dir, 2, SL_GIB);
        struct sl_pins_view *view = view_of(dir);
        struct sl_access out[4];
        struct sl_packed_hints said = {
            .session = 2, .priority = 3, .keep_ns = 90 * SL_NS_PER_S + 1};
        sl_pins_note_hints(pins, 7, 70, sl_packed_hints_pack(&said));
        sl_pins_note_access(pins, 8, 80);
        sl_pins_note_hints(pins, 9, 90, UINT32_MAX); /* a hostile reader */

        ck_assert_uint_eq(sl_pins_view_drain(view, out, 4), 3);

        sl_packed_hints_unpack(out[0].said, &said);
        ck_assert_uint_eq(said.session, 2);
        ck_assert_uint_eq(said.priority, 3);
        ck_assert_uint_eq(said.keep_ns, 91 * SL_NS_PER_S); /* whole seconds, upwards */
        ck_assert_uint_eq(out[1].said, 0);
        sl_packed_hints_unpack(out[2].said, &said);
        ck_assert_uint_le(said.session, 2);
        ck_assert_uint_le(said.priority, 3);
        ck_assert_uint_eq(said.keep_ns, SL_KEEP_NS_MAX);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(segment_of_a_dead_process_is_replaced_and_of_a_living_one_is_not)
    {
        char *dir = shm_dir_make();
        char made;
        int ready[2];
        struct sl_pins *second = NULL;
        ck_assert_int_eq(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            pins_in(dir, 4, SL_GIB);
            (void)(write(ready[1], "", 1) == 1 && pause());
            _exit(0);
        }
        ck_assert_int_eq(read(ready[0], &made, 1), 1);
        struct sl_pins_options options = {
            .shm_dir = dir, .name = "client", .slot_count = 4, .access_count = 8, .self = own_id()};
        sl_err beside = sl_pins_create(&options, &second, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0); /* without destroying */
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_int_eq(beside, SL_ERR_EXISTS);

        struct sl_pins *pins = pins_in(dir, 8, SL_GIB);

        sl_pins_destroy(&pins);
        pins = pins_in(dir, 8, SL_GIB); /* destroying removed the file */
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

/* A client in another process, controlled by this one. */
struct client_child {
    pid_t pid;
    int orders, answers;
};

static void client_live(const char *dir, int orders, int answers)
{
    const struct sl_proc_id self = sl_proc_id_client();
    struct sl_pins *pins = NULL;
    char name[SL_CLIENT_NAME_BYTES], path[256], order = 0;
    sl_client_name(self, name);
    const struct sl_pins_options options = {
        .shm_dir = dir, .name = name, .slot_count = 8, .access_count = 8, .self = self};
    if (sl_pins_create(&options, &pins, NULL) != SL_OK ||
        write(answers, &self, sizeof(self)) != sizeof(self)) {
        _exit(1);
    }
    (void)snprintf(path, sizeof(path), "%s/pins.%s", dir, name);
    while (read(orders, &order, 1) == 1) {
        if (order == 't') {
            (void)close(open(path, O_RDONLY));
        } else if (order == 's') {
            for (int fd = 3; fd < 256; fd++) {
                (void)(fd == orders || fd == answers || close(fd));
            }
        } else if (order == 'e') {
            sl_pins_end(&pins);
        } else if (order == 'x') { /* another program; it answers itself */
            char command[96];
            (void)snprintf(command, sizeof(command),
                           "printf x >/proc/self/fd/%d && exec sleep 1000", answers);
            (void)execl("/bin/sh", "sh", "-c", command, NULL);
            _exit(1);
        } else if (order == 'f') {
            if (fork() == 0 && write(answers, &order, 1) == 1) {
                (void)pause();
            }
            continue;
        } else if (order == 'c') { /* a fork closes its copy, as every ending one does */
            pid_t fork_pid = fork();
            if (fork_pid == 0) {
                sl_pins_leave(&pins);
                _exit(0);
            }
            (void)waitpid(fork_pid, NULL, 0);
        }
        if (write(answers, &order, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

static struct client_child client_start(const char *dir, struct sl_proc_id *id)
{
    int orders[2], answers[2];
    ck_assert_int_eq(pipe(orders), 0);
    ck_assert_int_eq(pipe(answers), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0); /* its forks end with it */
        (void)close(orders[1]);
        client_live(dir, orders[0], answers[1]);
    }
    (void)close(orders[0]);
    (void)close(answers[1]);
    ck_assert_int_eq(read(answers[0], id, sizeof(*id)), sizeof(*id));
    return (struct client_child){.pid = pid, .orders = orders[1], .answers = answers[0]};
}

static void client_does(const struct client_child *child, const char *orders)
{
    char done;
    for (; *orders != '\0'; orders++) {
        ck_assert_int_eq(write(child->orders, orders, 1), 1);
        ck_assert_int_eq(read(child->answers, &done, 1), 1);
    }
}

static const struct {
    const char *does;
    bool killed;
    enum sl_client_state want;
} lives[] = {
    {"", false, SL_CLIENT_LIVES},
    {"c", false, SL_CLIENT_LIVES},
    {"t", false, SL_CLIENT_UNLOCKED},
    {"s", false, SL_CLIENT_UNLOCKED}, /* all descriptors; the mapping remains */
    {"sf", false, SL_CLIENT_UNLOCKED},
    {"e", false, SL_CLIENT_GONE},
    {"te", false, SL_CLIENT_GONE},
    {"x", false, SL_CLIENT_GONE}, /* the process continues with another program */
    {"fx", false, SL_CLIENT_GONE},
    {"", true, SL_CLIENT_GONE},
    {"f", true, SL_CLIENT_GONE}, /* the fork has the file, and no lock */
    {"t", true, SL_CLIENT_GONE},
};

/* Makes the client's process number belong to a namespace that we do not see. */
static void client_is_apart(const char *dir, struct sl_proc_id id)
{
    char client[SL_CLIENT_NAME_BYTES], path[256];
    const uint64_t space = sl_proc_pid_namespace() + 1;
    sl_client_name(id, client);
    (void)snprintf(path, sizeof(path), "%s/pins.%s", dir, client);
    SL_AUTO(close) int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, &space, sizeof(space), SL_SHM_FILE_OWN_OFFSET_BYTES + 48), 8);
}

START_TEST(a_client_lives_as_long_as_its_lock)
    {
        char *dir = shm_dir_make();
        struct sl_proc_id id;
        struct client_child child = client_start(dir, &id);
        const bool apart = _i % 2 != 0;
        const char *does = lives[_i / 2].does;
        const enum sl_client_state want = lives[_i / 2].want;
        int kept = -1, fresh = -1, other = -1;
        if (apart) {
            client_is_apart(dir, id);
        }
        ck_assert(sl_proc_id_is_client(id));
        ck_assert_int_eq(sl_client_state(dir, id, &kept), SL_CLIENT_LIVES);
        ck_assert_int_ge(kept, 0);

        client_does(&child, does);
        if (lives[_i / 2].killed) {
            ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
            ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
        }

        const enum sl_client_state again = sl_client_state(dir, id, &kept);
        const enum sl_client_state first = sl_client_state(dir, id, &fresh);
        (void)kill(-child.pid, SIGKILL);
        ck_assert_int_eq(again, want);
        ck_assert_int_eq(first, want);
        id.start_time++; /* another client with its number */
        ck_assert_int_eq(sl_client_state(dir, id, &other), SL_CLIENT_GONE);
        shm_dir_remove(dir);
    }
END_TEST

/* The kernel grants leases of an overlay's files even if they are mapped. */
START_TEST(a_client_without_its_lock_is_not_taken_for_dead_on_an_overlay)
    {
        static const char *const parts[] = {"lower", "upper", "work", "all"};
        char *dir = shm_dir_make();
        char path[256], options[768];
        struct sl_proc_id id;
        int fd = -1;
        bool mounted = shm_dir_limit(dir, "4m");
        for (uint32_t i = 0; i < SL_COUNT(parts); i++) {
            (void)snprintf(path, sizeof(path), "%s/%s", dir, parts[i]);
            mounted = mounted && mkdir(path, 0700) == 0;
        }
        (void)snprintf(options, sizeof(options),
                       "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir);
        if (!mounted || mount("overlay", path, "overlay", 0, options) != 0) {
            printf("pins: not tried on an overlay: %s\n", strerror(errno));
            (void)umount2(dir, MNT_DETACH);
            shm_dir_remove(dir);
            return;
        }
        struct client_child child = client_start(path, &id);
        if (_i == 1) {
            client_is_apart(path, id);
        }

        client_does(&child, "s");

        const enum sl_client_state life = sl_client_state(path, id, &fd);
        (void)kill(-child.pid, SIGKILL);
        (void)close(fd);
        (void)umount2(dir, MNT_DETACH);
        shm_dir_remove(dir);
        ck_assert_int_eq(life, SL_CLIENT_UNLOCKED);
    }
END_TEST

static struct sl_pins *client_in(const char *dir)
{
    const struct sl_proc_id self = sl_proc_id_client();
    struct sl_pins *pins = NULL;
    char name[SL_CLIENT_NAME_BYTES];
    struct sl_error why = {0};
    sl_client_name(self, name);
    const struct sl_pins_options options = {
        .shm_dir = dir, .name = name, .slot_count = 8, .access_count = 8, .self = self};
    ck_assert_sl_ok(sl_pins_create(&options, &pins, &why), why);
    return pins;
}

/* The exit status of a fork: the number of descriptors from `first` on that it lacks. */
static int lacks_in_a_fork(int first, int end)
{
    int status = 0, lacks = 0;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        for (int fd = first; fd < end; fd++) {
            lacks += fcntl(fd, F_GETFD) < 0;
        }
        _exit(lacks);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(a_descriptor_that_took_the_number_of_a_closed_one_is_left_alone)
    {
        char *dir = shm_dir_make();
        const int first = dup(0), end = first + 8;
        (void)close(first);
        struct sl_pins *pins = client_in(dir);
        for (int fd = first; fd < end; fd++) { /* a daemon that closes all */
            (void)close(fd);
        }
        for (int fd = first; fd < end; fd++) {
            ck_assert_int_eq(dup(0), fd);
        }

        ck_assert_int_eq(lacks_in_a_fork(first, end), 0);
        sl_pins_destroy(&pins);
        ck_assert_int_eq(lacks_in_a_fork(first, end), 0);
        shm_dir_remove(dir);
    }
END_TEST

struct churn {
    const char *dir;
    _Atomic bool stop;
};

static void *clients_come_and_go(void *context)
{
    struct churn *churn = context;
    while (!atomic_load(&churn->stop)) {
        struct sl_pins *pins = client_in(churn->dir);
        sl_pins_destroy(&pins);
    }
    return NULL;
}

/* Whether a file of the directory is mapped shared. No stdio: another thread may hold its lock. */
static bool maps_any(const char *dir)
{
    static char maps[256 << 10];
    size_t length = 0;
    ssize_t got = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    while ((got = read(fd, maps + length, sizeof(maps) - 1 - length)) > 0) {
        length += (size_t)got;
    }
    return length == 0 || strstr(maps, dir) != NULL;
}

START_TEST(a_fork_maps_no_pins_whatever_another_thread_does)
    {
        struct churn churn = {.dir = shm_dir_make()};
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, clients_come_and_go, &churn), 0);
        int mapped = 0;
        for (int i = 0; i < FORKS; i++) {
            int status = 0;
            pid_t child = fork();
            if (child == 0) {
                _exit(maps_any(churn.dir));
            }
            ck_assert_int_eq(waitpid(child, &status, 0), child);
            mapped += status != 0;
        }
        atomic_store(&churn.stop, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(mapped, 0);
        shm_dir_remove((char *)(uintptr_t)churn.dir);
    }
END_TEST

START_TEST(counts_out_of_range_are_invalid)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = NULL;
        struct sl_pins_options options = {
            .shm_dir = dir, .name = "x", .slot_count = 0, .access_count = 8};
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        options.slot_count = 1;
        options.access_count = 7;
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        options.access_count = 8;
        options.name = "a-name-that-is-much-too-long-for-a-pin-segment-of-one-client-of-a-node";
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    off_t at;
    uint64_t value;
    unsigned bytes;
} hostile[] = {
    {16, 0, 4}, {16, 5000, 4}, {16, UINT32_MAX, 4}, /* slot_count */
    {20, 0, 4}, {20, 7, 4},    {20, 1u << 19, 4},   /* access_count */
};

START_TEST(hostile_counts_of_a_client_are_corrupt)
    {
        char *dir = shm_dir_make();
        char path[128];
        struct sl_pins *pins = pins_in(dir, 4, SL_GIB);
        struct sl_pins_view *view = NULL;
        snprintf(path, sizeof(path), "%s/pins.client", dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &hostile[_i].value, hostile[_i].bytes,
                                (off_t)SL_SHM_FILE_OWN_OFFSET_BYTES + hostile[_i].at),
                         hostile[_i].bytes);
        close(fd);

        ck_assert_int_eq(sl_pins_view_open(dir, "pins.client", &view, NULL), SL_ERR_CORRUPT);

        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(hostile_positions_of_a_client_are_bounded)
    {
        char *dir = shm_dir_make();
        char path[128];
        uint64_t value = UINT64_MAX;
        struct sl_access out[16];
        struct seen seen = {.count = 0};
        struct sl_pins *pins = pins_in(dir, 4, SL_GIB);
        struct sl_pins_view *view = view_of(dir);
        snprintf(path, sizeof(path), "%s/pins.client", dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &value, 8, SL_SHM_FILE_OWN_OFFSET_BYTES + 64),
                         8); /* slots_used */
        ck_assert_int_eq(pwrite(fd, &value, 8, SL_SHM_FILE_OWN_OFFSET_BYTES + 128),
                         8); /* access_position */
        close(fd);

        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0);
        ck_assert_uint_le(sl_pins_view_drain(view, out, 16), 8);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

/* ---- pinned bytes do not change ---- */

#define STRESS_KEYS    24u
#define STRESS_READERS 2
#define STRESS_BYTES   512u
#define RETIRED_MAX    4096u

struct stress {
    struct bed bed;
    struct sl_pins *pins;
    struct sl_pins_view *pins_view;
    struct sl_alloc *alloc;
    _Atomic bool stop;
    _Atomic uint64_t pinned, stale, limit, wrong, misses;
    struct {
        sl_ref ref;
        struct sl_extent extent;
    } retired[RETIRED_MAX];
    uint32_t retired_count;
    uint64_t held_count;
};

static uint64_t stress_word(uint32_t key, uint64_t generation)
{
    return generation * UINT64_C(0x9e3779b97f4a7c15) ^ key;
}

static bool stress_bytes_right(struct stress *stress, uint32_t key, const struct sl_entry *entry)
{
    const _Atomic uint64_t *words =
        sl_arena_at(stress->bed.arena, entry->extent.offset_bytes, STRESS_BYTES);
    bool right = words != NULL;
    for (uint32_t i = 0; right && i < STRESS_BYTES / 8; i++) {
        right = atomic_load_explicit(&words[i], memory_order_relaxed) ==
                stress_word(key, entry->extent.generation);
    }
    return right;
}

static void *stress_reader(void *argument)
{
    struct stress *stress = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random | 1;
    while (!atomic_load(&stress->stop)) {
        uint32_t number = (uint32_t)(random_next(&random) % STRESS_KEYS);
        struct sl_entry entry;
        sl_pin pin = 0;
        char key[16];
        snprintf(key, sizeof(key), "key-%u", number);
        if (bed_find(&stress->bed, key, &entry) != SL_OK) {
            atomic_fetch_add(&stress->misses, 1);
            continue;
        }
        sl_err err = sl_pins_take(stress->pins, stress->bed.view, &entry, &pin);
        if (err == SL_OK) {
            bool right = true;
            for (int i = 0; i < 4; i++) { /* for a while */
                right = right && stress_bytes_right(stress, number, &entry);
            }
            atomic_fetch_add(&stress->wrong, right ? 0 : 1);
            atomic_fetch_add(&stress->pinned, 1);
            sl_pins_release(stress->pins, pin);
        } else {
            must(err == SL_ERR_STALE || err == SL_ERR_LIMIT);
            atomic_fetch_add(err == SL_ERR_STALE ? &stress->stale : &stress->limit, 1);
        }
    }
    return NULL;
}

static struct sl_extent stress_fill(struct stress *stress, uint32_t number)
{
    struct sl_extent extent = {.length_bytes = STRESS_BYTES};
    must(sl_alloc_take(stress->alloc, STRESS_BYTES, &extent.offset_bytes) == SL_OK);
    extent.generation = sl_arena_next_generation(stress->bed.arena);
    _Atomic uint64_t *words = sl_arena_at(stress->bed.arena, extent.offset_bytes, STRESS_BYTES);
    for (uint32_t i = 0; i < STRESS_BYTES / 8; i++) {
        atomic_store_explicit(&words[i], stress_word(number, extent.generation),
                              memory_order_relaxed);
    }
    return extent;
}

/* The registrar's batch: fence, scan, free unpinned extents. */
static void stress_reap(struct stress *stress)
{
    struct seen seen = {.count = 0};
    uint32_t kept = 0;
    atomic_thread_fence(memory_order_seq_cst);
    sl_pins_view_scan(stress->pins_view, see, &seen);
    for (uint32_t i = 0; i < stress->retired_count; i++) {
        bool pinned = false;
        for (uint32_t j = 0; j < seen.count; j++) {
            pinned = pinned || seen.generations[j] == stress->retired[i].extent.generation;
        }
        if (pinned) {
            stress->held_count++;
            stress->retired[kept++] = stress->retired[i];
            continue;
        }
        sl_index_set_kind(stress->bed.index, stress->retired[i].ref, SL_RECORD_FREE);
        sl_alloc_free(stress->alloc, stress->retired[i].extent.offset_bytes, STRESS_BYTES);
    }
    stress->retired_count = kept;
}

START_TEST(pinned_bytes_do_not_change_while_everything_else_does)
    {
        uint64_t random = random_seed("pinned_bytes_do_not_change_while_everything_else_does");
        struct stress *stress = calloc(1, sizeof(*stress));
        sl_ref refs[STRESS_KEYS];
        pthread_t readers[STRESS_READERS];
        stress->bed = bed_make(SL_MIB, 100);
        stress->pins = pins_in(stress->bed.dir, 32, SL_GIB);
        stress->pins_view = view_of(stress->bed.dir);
        struct sl_alloc_options options = {.data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        ck_assert_int_eq(sl_arena_populate_below(stress->bed.arena, UINT64_MAX, NULL), SL_OK);
        ck_assert_int_eq(sl_alloc_create(&options, &stress->alloc, NULL), SL_OK);
        sl_alloc_grow(stress->alloc, sl_arena_populated_bytes(stress->bed.arena));
        for (uint32_t i = 0; i < STRESS_KEYS; i++) {
            char key[16];
            snprintf(key, sizeof(key), "key-%u", i);
            struct sl_entry entry = entry_of(key, i);
            entry.extent = stress_fill(stress, i);
            ck_assert_int_eq(sl_index_insert(stress->bed.index, &entry, &refs[i], NULL), SL_OK);
        }
        for (int i = 0; i < STRESS_READERS; i++) {
            ck_assert_int_eq(pthread_create(&readers[i], NULL, stress_reader, stress), 0);
        }
        uint64_t ends_ns = stopwatch_ns() + 3000000000u;
        uint64_t changes = 0;
        while (stopwatch_ns() < ends_ns) {
            for (int i = 0; i < 20; i++, changes++) {
                uint32_t number = (uint32_t)(random_next(&random) % STRESS_KEYS);
                struct sl_entry old;
                bool retired = false;
                sl_index_read(stress->bed.index, refs[number], &old);
                struct sl_extent extent = stress_fill(stress, number);
                must(sl_index_switch_retire(stress->bed.index, old.ref, &extent, NULL,
                                            &refs[number], &retired) == SL_OK);
                must(retired && stress->retired_count < RETIRED_MAX);
                stress->retired[stress->retired_count].ref = old.ref;
                stress->retired[stress->retired_count++].extent = old.extent;
            }
            stress_reap(stress);
        }
        atomic_store(&stress->stop, true);
        for (int i = 0; i < STRESS_READERS; i++) {
            pthread_join(readers[i], NULL);
        }
        printf("pins: %llu changes, %llu pinned, %llu stale, %llu held back\n",
               (unsigned long long)changes, (unsigned long long)stress->pinned,
               (unsigned long long)stress->stale, (unsigned long long)stress->held_count);
        ck_assert_uint_eq(stress->wrong, 0);
        ck_assert_uint_eq(stress->misses, 0);
        ck_assert_uint_gt(stress->pinned, 100);
        stress_reap(stress);
        ck_assert_uint_eq(stress->retired_count, 0);
        ck_assert_uint_eq(sl_pins_pinned_bytes(stress->pins), 0);
        sl_alloc_destroy(&stress->alloc);
        sl_pins_view_close(&stress->pins_view);
        sl_pins_destroy(&stress->pins);
        bed_remove(&stress->bed);
        free(stress);
    }
END_TEST

/* ---- everything at once: the registrar's whole life with a key, under readers of every kind ----
 */

#define LIFE_KEYS    32u
#define LIFE_STAYING 8u /* the first of them are never removed */
#define LIFE_READERS 3
#define LIFE_CHANGES 100000
#define LIFE_CHECKS  2000          /* that each reader gets done, however slow the machine */
#define LIFE_ARENA   (64 * SL_KIB) /* 128 values: what is freed is used again at once */
#define LIFE_RETIRED 48u

struct life {
    struct bed bed;
    struct sl_pins *pins;
    struct sl_pins_view *pins_view;
    struct sl_alloc *alloc;
    struct sl_alloc_options space;
    _Atomic bool stop;
    _Atomic uint64_t copied, torn, pinned, stale, on_disk, scanned, wrong, missed;
    sl_ref refs[LIFE_KEYS]; /* the writer's from here on */
    struct {
        sl_ref ref;
        struct sl_extent extent;
    } retired[LIFE_RETIRED];
    uint32_t retired_count;
    uint64_t counts[5], held_count, accesses;
};

/* Lengths differ, so that an extent is divided differently when it is reused. */
static uint64_t life_length(uint32_t number)
{
    return 64 + number % 8 * 64;
}

static uint32_t life_key(uint32_t number, char key[96])
{
    return (uint32_t)snprintf(key, 96, "key-%u%.*s", number, (int)(number % 4 * 20),
                              "-and-a-tail-that-needs-records-of-other-classes-than-others-do");
}

static bool life_bytes_right(struct life *life, uint32_t number, const struct sl_entry *entry)
{
    const _Atomic uint64_t *words =
        sl_arena_at(life->bed.arena, entry->extent.offset_bytes, entry->extent.length_bytes);
    bool right = words != NULL && entry->extent.length_bytes == life_length(number);
    for (uint32_t i = 0; right && i < entry->extent.length_bytes / 8; i++) {
        right = atomic_load_explicit(&words[i], memory_order_relaxed) ==
                stress_word(number, entry->extent.generation) + i;
    }
    return right;
}

static void life_copy(struct life *life, uint32_t number, const struct sl_entry *entry)
{
    bool right = life_bytes_right(life, number, entry);
    sched_yield(); /* time for the bytes to change */
    right = life_bytes_right(life, number, entry) && right;
    bool accepted = sl_index_unchanged(life->bed.view, entry);
    atomic_fetch_add(accepted ? &life->copied : &life->torn, 1);
    atomic_fetch_add(&life->wrong, accepted && !right ? 1 : 0);
}

static void life_pin(struct life *life, uint32_t number, const struct sl_entry *entry)
{
    sl_pin pin = 0;
    sl_err err = sl_pins_take(life->pins, life->bed.view, entry, &pin);
    if (err != SL_OK) {
        must(err == SL_ERR_STALE || err == SL_ERR_LIMIT);
        atomic_fetch_add(&life->stale, 1);
        return;
    }
    bool right = true;
    for (int i = 0; i < 3; i++) {
        right = right && life_bytes_right(life, number, entry);
        sched_yield();
    }
    atomic_fetch_add(&life->wrong, right ? 0 : 1);
    atomic_fetch_add(&life->pinned, 1);
    sl_pins_note_access(life->pins, entry->ref, entry->extent.generation);
    sl_pins_release(life->pins, pin);
}

/* Staying keys are returned exactly once, whatever happens to the others. */
static void life_scan(struct life *life)
{
    uint64_t cursor = 0;
    uint32_t staying = 0;
    struct sl_entry entry;
    char key[SL_KEY_BYTES_MAX + 1];
    while (sl_index_scan(life->bed.view, &cursor, &entry, key)) {
        staying += (uint32_t)strtoul(key + 4, NULL, 10) < LIFE_STAYING;
    }
    atomic_fetch_add(&life->missed, staying != LIFE_STAYING ? 1 : 0);
    atomic_fetch_add(&life->scanned, 1);
}

static void *life_reader(void *argument)
{
    struct life *life = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random | 1;
    uint64_t checks = 0;
    while (checks < LIFE_CHECKS || !atomic_load(&life->stop)) {
        uint64_t dice = random_next(&random) >> 32;
        uint32_t number = (uint32_t)dice % LIFE_KEYS;
        char text[96];
        struct sl_key key = {text, life_key(number, text)};
        struct sl_entry entry;
        sl_err err = SL_OK;
        if (dice / LIFE_KEYS % 64 == 0) {
            life_scan(life);
        }
        if (dice / LIFE_KEYS % 2 == 0) {
            sl_index_find_batch(life->bed.view, &key, 1, &entry, &err);
        } else {
            err = sl_index_find(life->bed.view, key.at, key.length, &entry);
        }
        checks++;
        if (err != SL_OK) {
            must(err == SL_ERR_NOT_FOUND || err == SL_ERR_BUSY);
            atomic_fetch_add(&life->missed,
                             number < LIFE_STAYING && err == SL_ERR_NOT_FOUND ? 1 : 0);
            continue;
        }
        if (entry.extent.generation == 0) {
            atomic_fetch_add(&life->on_disk, 1);
            atomic_fetch_add(&life->wrong, entry.disk.valid != 0 ? 0 : 1);
        } else if (dice / LIFE_KEYS % 3 == 0) {
            life_copy(life, number, &entry);
        } else {
            life_pin(life, number, &entry);
        }
    }
    return NULL;
}

static bool life_is_pinned(const struct seen *seen, uint64_t generation)
{
    bool pinned = false;
    for (uint32_t i = 0; i < seen->count; i++) {
        pinned = pinned || seen->generations[i] == generation;
    }
    return pinned;
}

/* A small reg_retired_scan. */
static void life_reap(struct life *life)
{
    struct seen seen = {.count = 0};
    uint32_t kept = 0;
    atomic_thread_fence(memory_order_seq_cst);
    sl_pins_view_scan(life->pins_view, see, &seen);
    for (uint32_t i = 0; i < life->retired_count; i++) {
        if (life_is_pinned(&seen, life->retired[i].extent.generation)) {
            life->held_count++;
            life->retired[kept++] = life->retired[i];
            continue;
        }
        sl_index_set_kind(life->bed.index, life->retired[i].ref, SL_RECORD_FREE);
        sl_alloc_free(life->alloc, life->retired[i].extent.offset_bytes,
                      life->retired[i].extent.length_bytes);
    }
    life->retired_count = kept;
}

static void life_retire(struct life *life, const struct sl_entry *old)
{
    must(life->retired_count < LIFE_RETIRED);
    life->retired[life->retired_count].ref = old->ref;
    life->retired[life->retired_count++].extent = old->extent;
}

static struct sl_extent life_fill(struct life *life, uint32_t number)
{
    struct sl_extent extent = {.length_bytes = life_length(number)};
    while (sl_alloc_take(life->alloc, extent.length_bytes, &extent.offset_bytes) != SL_OK) {
        life_reap(life);
    }
    extent.generation = sl_arena_next_generation(life->bed.arena);
    _Atomic uint64_t *words =
        sl_arena_at(life->bed.arena, extent.offset_bytes, extent.length_bytes);
    for (uint32_t i = 0; i < extent.length_bytes / 8; i++) {
        atomic_store_explicit(&words[i], stress_word(number, extent.generation) + i,
                              memory_order_relaxed);
    }
    return extent;
}

static void life_insert(struct life *life, uint32_t number)
{
    char key[96];
    life_key(number, key);
    struct sl_entry want = entry_of(key, number);
    want.extent = life_fill(life, number);
    must(sl_index_claim(life->bed.index, &want, &life->refs[number], NULL) == SL_OK);
    must(sl_index_commit(life->bed.index, life->refs[number], want.digest) == SL_OK);
}

enum { LIFE_INSERT, LIFE_REMOVE, LIFE_MOVE, LIFE_SPILL, LIFE_PROMOTE };

/* One step in the life of a key: present or not, in memory, only on disk, elsewhere. */
static void life_change(struct life *life, uint32_t number, uint64_t dice)
{
    static const struct sl_extent nowhere = {0};
    const struct sl_disk_place place = {.segment = 1, .valid = 1};
    struct sl_entry old;
    bool retired = false;
    int what = LIFE_INSERT;
    if (life->refs[number] == 0) {
        life_insert(life, number);
        life->counts[what]++;
        return;
    }
    sl_index_read(life->bed.index, life->refs[number], &old);
    if (number >= LIFE_STAYING && dice % 4 == 0) {
        what = LIFE_REMOVE;
        retired = old.extent.generation != 0;
        sl_index_unlink(life->bed.index, old.ref, retired ? SL_RECORD_RETIRED : SL_RECORD_FREE);
        life->refs[number] = 0;
    } else {
        what = old.extent.generation == 0 ? LIFE_PROMOTE : dice % 2 == 0 ? LIFE_MOVE : LIFE_SPILL;
        struct sl_extent extent = what == LIFE_SPILL ? nowhere : life_fill(life, number);
        must(sl_index_switch_retire(life->bed.index, old.ref, &extent,
                                    what == LIFE_SPILL ? &place : NULL, &life->refs[number],
                                    &retired) == SL_OK);
    }
    if (retired) {
        life_retire(life, &old);
    }
    life->counts[what]++;
}

static void life_drain(struct life *life)
{
    struct sl_access accesses[16];
    life->accesses += sl_pins_view_drain(life->pins_view, accesses, 16);
}

static struct life *life_make(void)
{
    struct life *life = calloc(1, sizeof(*life));
    life->bed = (struct bed){
        .dir = shm_dir_make(), .index_bytes = SL_MIB, .key_count = 100, .arena_bytes = LIFE_ARENA};
    bed_attach(&life->bed);
    life->pins = pins_in(life->bed.dir, 2 * LIFE_READERS, SL_GIB);
    life->pins_view = view_of(life->bed.dir);
    life->space = (struct sl_alloc_options){.data_bytes = LIFE_ARENA, .chunk_bytes = LIFE_ARENA};
    ck_assert_int_eq(sl_arena_populate_below(life->bed.arena, UINT64_MAX, NULL), SL_OK);
    ck_assert_int_eq(sl_alloc_create(&life->space, &life->alloc, NULL), SL_OK);
    sl_alloc_grow(life->alloc, sl_arena_populated_bytes(life->bed.arena));
    for (uint32_t i = 0; i < LIFE_STAYING; i++) {
        life_insert(life, i);
    }
    return life;
}

static void life_end(struct life *life)
{
    sl_alloc_destroy(&life->alloc);
    sl_pins_view_close(&life->pins_view);
    sl_pins_destroy(&life->pins);
    bed_remove(&life->bed);
    free(life);
}

START_TEST(readers_of_every_kind_get_right_bytes_while_everything_changes)
    {
        uint64_t random =
            random_seed("readers_of_every_kind_get_right_bytes_while_everything_changes");
        pthread_t readers[LIFE_READERS];
        struct life *life = life_make();
        for (int i = 0; i < LIFE_READERS; i++) {
            ck_assert_int_eq(pthread_create(&readers[i], NULL, life_reader, life), 0);
        }
        for (int i = 0; i < LIFE_CHANGES; i++) {
            uint64_t dice = random_next(&random) >> 32;
            life_change(life, (uint32_t)dice % LIFE_KEYS, dice / LIFE_KEYS);
            if (i % 16 == 0 || life->retired_count == LIFE_RETIRED) {
                do {
                    life_reap(life);
                } while (life->retired_count == LIFE_RETIRED);
                life_drain(life);
                sched_yield();
            }
        }
        atomic_store(&life->stop, true);
        for (int i = 0; i < LIFE_READERS; i++) {
            pthread_join(readers[i], NULL);
        }
        printf(
            "%llu inserted, %llu removed, %llu moved, %llu to disk, %llu back; %llu copied, %llu "
            "torn, %llu pinned, %llu stale, %llu on disk, %llu held back, %llu accesses\n",
            (unsigned long long)life->counts[0], (unsigned long long)life->counts[1],
            (unsigned long long)life->counts[2], (unsigned long long)life->counts[3],
            (unsigned long long)life->counts[4], (unsigned long long)life->copied,
            (unsigned long long)life->torn, (unsigned long long)life->pinned,
            (unsigned long long)life->stale, (unsigned long long)life->on_disk,
            (unsigned long long)life->held_count, (unsigned long long)life->accesses);
        ck_assert_uint_eq(life->wrong, 0);
        ck_assert_uint_eq(life->missed, 0);
        ck_assert_uint_gt(life->copied, 0);
        ck_assert_uint_gt(life->pinned, 0);
        ck_assert_uint_gt(life->accesses, 0);
        life_reap(life);
        ck_assert_uint_eq(life->retired_count, 0);
        life_end(life);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("pins");
    tcase_set_timeout(tcase, 110);
    tcase_add_test(tcase, pin_is_seen_until_it_is_given_back);
    tcase_add_test(tcase, entry_that_changed_is_stale);
    tcase_add_test(tcase, slots_and_bytes_are_bounded);
    tcase_add_test(tcase, accesses_are_drained_in_order_and_the_oldest_are_lost);
    tcase_add_test(tcase, each_view_drains_all_accesses_and_knows_a_name_that_is_gone);
    tcase_add_test(tcase, what_is_said_with_an_access_arrives_within_its_bounds);
    tcase_add_test(tcase, segment_of_a_dead_process_is_replaced_and_of_a_living_one_is_not);
    tcase_add_loop_test(tcase, a_client_lives_as_long_as_its_lock, 0, 2 * SL_COUNT(lives));
    tcase_add_loop_test(tcase, a_client_without_its_lock_is_not_taken_for_dead_on_an_overlay, 0, 2);
    tcase_add_test(tcase, a_descriptor_that_took_the_number_of_a_closed_one_is_left_alone);
    tcase_add_test(tcase, a_fork_maps_no_pins_whatever_another_thread_does);
    tcase_add_test(tcase, counts_out_of_range_are_invalid);
    tcase_add_loop_test(tcase, hostile_counts_of_a_client_are_corrupt, 0, SL_COUNT(hostile));
    tcase_add_test(tcase, hostile_positions_of_a_client_are_bounded);
    tcase_add_test(tcase, pinned_bytes_do_not_change_while_everything_else_does);
    tcase_add_test(tcase, readers_of_every_kind_get_right_bytes_while_everything_changes);
    return suite_run(tcase, "pins");
}
