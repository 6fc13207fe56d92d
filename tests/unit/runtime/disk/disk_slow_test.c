/* tests/unit/runtime/disk/disk_slow_test.c - a disk that hangs in a call outside io_uring: only the
 * requester waits. The linker wraps the calls. */
#include "actors/tierer/tierer.h"
#include "ipc/shm/sl_index.h"
#include "runtime/disk/sl_disk.h"
#include "runtime/disk/sl_disk_place.h"
#include "tests/support/fake_env.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- calls that hang ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool on;
    uint32_t inside; /* threads that hang */
} hang = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void hang_here(void)
{
    pthread_mutex_lock(&hang.lock);
    hang.inside++;
    pthread_cond_broadcast(&hang.changed);
    while (hang.on) {
        pthread_cond_wait(&hang.changed, &hang.lock);
    }
    hang.inside--;
    pthread_mutex_unlock(&hang.lock);
}

static void hang_set(bool on)
{
    pthread_mutex_lock(&hang.lock);
    hang.on = on;
    pthread_cond_broadcast(&hang.changed);
    pthread_mutex_unlock(&hang.lock);
}

static bool hangs(void)
{
    pthread_mutex_lock(&hang.lock);
    bool inside = hang.inside > 0;
    pthread_mutex_unlock(&hang.lock);
    return inside;
}

static void hang_await(void)
{
    pthread_mutex_lock(&hang.lock);
    while (hang.inside == 0) {
        pthread_cond_wait(&hang.changed, &hang.lock);
    }
    pthread_mutex_unlock(&hang.lock);
}

int __real_ftruncate(int fd, off_t length);
int __wrap_ftruncate(int fd, off_t length);
int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);

int __wrap_ftruncate(int fd, off_t length)
{
    hang_here();
    return __real_ftruncate(fd, length);
}

int __wrap_unlinkat(int fd, const char *name, int flags)
{
    hang_here();
    return __real_unlinkat(fd, name, flags);
}

int __wrap_fsync(int fd)
{
    hang_here();
    return __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    hang_here();
    return __real_fdatasync(fd);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
    hang_here();
    return __real_fallocate(fd, mode, offset, length);
}

/* ---- the disk ---- */

#define PAGE SL_PAGE_BYTES

static struct sl_tmpdir tmpdir;
static struct sl_disk *disk;
static int event_fd = -1;
static unsigned char *page;

static void disk_setup(void)
{
    struct sl_error why = {0};
    sl_tmpdir_make(&tmpdir, "/tmp");
    page = aligned_alloc(PAGE, PAGE);
    ck_assert_ptr_nonnull(page);
    memset(page, 7, PAGE);
    sl_err err = sl_disk_uring_open(tmpdir.path, 8, true, &disk, &event_fd, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static void disk_teardown(void)
{
    hang_set(false);
    if (disk != NULL) {
        disk->ops->destroy(disk);
    }
    free(page);
    sl_tmpdir_remove(&tmpdir);
}

struct ends {
    uint32_t count;
    uint64_t cookie[8];
    int os_code[8];
};

static void note(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    struct ends *ends = context;
    (void)bytes;
    ck_assert_uint_lt(ends->count, SL_COUNT(ends->cookie));
    ends->cookie[ends->count] = cookie;
    ends->os_code[ends->count++] = os_code;
}

static void reap_until(struct ends *ends, uint32_t count)
{
    while (ends->count < count) {
        struct pollfd ready = {.fd = event_fd, .events = POLLIN};
        ck_assert_int_ge(poll(&ready, 1, -1), 0);
        disk->ops->reap(disk, note, ends);
    }
}

static int file_of(const char *name)
{
    int file = -1;
    uint64_t bytes = 0;
    struct sl_error why = {0};
    sl_err err = disk->ops->open(disk, name, true, 4 * PAGE, &file, &bytes, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    return file;
}

static void submit(struct sl_disk_request request)
{
    struct sl_error why = {0};
    sl_err err = disk->ops->submit(disk, &request, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    ck_assert_int_eq(disk->ops->flush(disk, NULL), SL_OK);
}

static const enum sl_disk_verb slow_verbs[] = {SL_DISK_RESIZE, SL_DISK_MAKE, SL_DISK_REMOVE};

static void submit_slow(enum sl_disk_verb verb, int file)
{
    submit((struct sl_disk_request){.verb = verb,
                                    .file = verb == SL_DISK_RESIZE ? file : -1,
                                    .name = verb == SL_DISK_MAKE     ? "fresh"
                                            : verb == SL_DISK_REMOVE ? "other"
                                                                     : NULL,
                                    .length_bytes = 2 * PAGE,
                                    .cookie = 1});
}

START_TEST(reads_go_on_while_a_call_hangs)
    {
        struct ends ends = {0};
        int file = file_of("file");
        disk->ops->close(disk, file_of("other"));
        hang_set(true);
        submit_slow(slow_verbs[_i], file);
        hang_await();
        for (uint64_t i = 0; i < 4; i++) {
            submit((struct sl_disk_request){.verb = SL_DISK_READ,
                                            .file = file,
                                            .memory = page,
                                            .length_bytes = PAGE,
                                            .cookie = 2 + i});
        }
        reap_until(&ends, 4);
        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_uint_ge(ends.cookie[i], 2);
            ck_assert_int_eq(ends.os_code[i], 0);
        }
        hang_set(false);
        reap_until(&ends, 5);
        ck_assert_uint_eq(ends.cookie[4], 1);
        ck_assert_int_eq(ends.os_code[4], 0);

        int again = -1;
        uint64_t bytes = 0;
        const char *name = slow_verbs[_i] == SL_DISK_MAKE ? "fresh" : "other";
        sl_err err = disk->ops->open(disk, slow_verbs[_i] == SL_DISK_RESIZE ? "file" : name, false,
                                     0, &again, &bytes, NULL);
        ck_assert_int_eq(err == SL_OK, slow_verbs[_i] != SL_DISK_REMOVE);
        ck_assert(err != SL_OK || bytes == 2 * PAGE);
    }
END_TEST

START_TEST(a_disk_is_left_while_a_call_hangs)
    {
        int file = file_of("file");
        disk->ops->close(disk, file_of("other"));
        hang_set(true);
        submit_slow(slow_verbs[_i], file);
        hang_await();
        submit_slow(slow_verbs[_i], file); /* not begun */
        disk->ops->destroy(disk);
        disk = NULL;
        hang_set(false);
    }
END_TEST

START_TEST(a_call_that_fails_says_why)
    {
        struct ends ends = {0};
        submit((struct sl_disk_request){
            .verb = SL_DISK_REMOVE, .file = -1, .name = "nothing", .cookie = 1});
        reap_until(&ends, 1);
        ck_assert_int_eq(ends.os_code[0], ENOENT);
    }
END_TEST

/* In addition to the file of members, the maximum number of log files. */
START_TEST(all_segments_of_a_disk_are_open_at_once)
    {
        struct rlimit limit;
        struct sl_error why = {0};
        uint64_t bytes = 0;
        int file = file_of("segment");
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = limit.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        for (uint32_t i = 0; i < SL_DISK_SEGMENTS_MAX && why.os_code == 0; i++) {
            sl_err err = disk->ops->open(disk, "segment", false, 0, &file, &bytes, &why);
            ck_assert_msg(err == SL_OK || why.os_code == EMFILE, "file %u: %s", i, why.text);
        }
    }
END_TEST

/* ---- the tierer on it ---- */

static struct fake_env fake;
static struct sl_env_ops ops;
static struct sl_arena *arena;
static struct sl_index *index_of_node;

static sl_err disk_open(struct sl_env *env, const char *directory, uint32_t depth, bool direct,
                        struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory;
    sl_err err = sl_disk_uring_open(tmpdir.path, depth, direct, &disk, &event_fd, why);
    *out = disk;
    return err;
}

static void actor_start(void)
{
    struct sl_error why = {0};
    ops = *fake.env.ops;
    ops.disk_open = disk_open;
    fake.env.ops = &ops;
    sl_err err = fake_start(&fake, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static void node_setup(void)
{
    static const char *const settings[] = {"disk", "8MiB", "disk_segment", "1MiB", "memory",
                                           "4MiB", NULL};
    bool created = false;
    sl_tmpdir_make(&tmpdir, "/tmp");
    fake_open(&fake, &sl_tierer_actor, settings);
    struct sl_arena_options arena_options = {
        .directory = fake.paths.shm_dir, .data_bytes = 4 << 20, .chunk_bytes = 4 << 20};
    ck_assert_int_eq(sl_arena_open_owner(&arena_options, &created, &arena, NULL), SL_OK);
    while (sl_arena_populate_below(arena, UINT64_MAX, NULL) == SL_OK) {
    }
    struct sl_index_options index_options = {
        .shm_dir = fake.paths.shm_dir, .index_bytes_max = 4 << 20, .arena = arena};
    ck_assert_int_eq(sl_index_open(&index_options, &created, &index_of_node, NULL), SL_OK);
    actor_start();
}

static void node_teardown(void)
{
    hang_set(false);
    fake_close(&fake);
    sl_index_close(&index_of_node);
    sl_arena_close(&arena);
    sl_tmpdir_remove(&tmpdir);
}

static void hand_over(void *context, uint64_t cookie, uint64_t bytes, int os_code)
{
    struct sl_msg msg = {.type = SL_MSG_LOCAL_IO};
    (void)context;
    msg.body.local_io.cookie = cookie;
    msg.body.local_io.bytes = bytes;
    msg.body.local_io.os_code = (uint64_t)os_code;
    ck_assert_int_eq(fake.actor->handle(fake.state, &msg), SL_OK);
}

static void answer_await(const struct sl_msg *asked, struct sl_msg *reply)
{
    while (!fake_take_reply(&fake, "registrar", asked->seq, reply)) {
        struct pollfd ready = {.fd = event_fd, .events = POLLIN};
        if (poll(&ready, 1, 1) > 0) {
            disk->ops->reap(disk, hand_over, NULL);
        }
        fake_advance(&fake, SL_NS_PER_MS);
    }
}

static const char key[] = "some key";
static struct sl_digest digest;

static struct sl_item_spilled value_write(void)
{
    unsigned char *at = sl_arena_at(arena, 0, 3 * PAGE);
    struct sl_msg reply, msg = {.type = SL_MSG_DISK_WRITE};
    memset(at, 5, 3 * PAGE);
    digest = sl_digest_of(at, 3 * PAGE);
    struct sl_item_spill item = {.key = sl_text_of(key),
                                 .length_bytes = 3 * PAGE,
                                 .generation = 1,
                                 .digest_low = digest.low,
                                 .digest_high = digest.high};
    msg.body.disk_write.items.at = &item;
    msg.body.disk_write.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    answer_await(&msg, &reply);
    struct sl_item_spilled spilled = reply.body.disk_write_reply.items.at[0];
    ck_assert_uint_eq(spilled.code, SL_OK);
    return spilled;
}

static void value_read(struct sl_item_spilled place)
{
    sl_ref ref = 0;
    struct sl_entry claim = {.kind = SL_RECORD_PROMOTING,
                             .key = key,
                             .key_length = sizeof(key) - 1,
                             .owner = fake.env.self,
                             .writer = fake.env.self};
    claim.extent = (struct sl_extent){.generation = sl_arena_next_generation(arena),
                                      .offset_bytes = 1 << 20,
                                      .length_bytes = 3 * PAGE};
    ck_assert_int_eq(sl_index_claim(index_of_node, &claim, &ref, NULL), SL_OK);
    struct sl_item_fill item = {.key = sl_text_of(key),
                                .segment = place.segment,
                                .disk_offset_bytes = place.disk_offset_bytes,
                                .length_bytes = 3 * PAGE,
                                .digest_low = digest.low,
                                .digest_high = digest.high,
                                .offset_bytes = 1 << 20,
                                .ref = ref,
                                .generation = claim.extent.generation};
    struct sl_msg reply, msg = {.type = SL_MSG_DISK_READ};
    msg.body.disk_read.items.at = &item;
    msg.body.disk_read.items.count = 1;
    fake_give(&fake, "registrar", &msg);
    answer_await(&msg, &reply);
    ck_assert_uint_eq(reply.body.disk_read_reply.codes.at[0], SL_OK);
    sl_index_set_kind(index_of_node, ref, SL_RECORD_FREE);
}

/* The file of members is written while the disk serves. */
START_TEST(values_are_read_while_a_file_is_being_made)
    {
        struct sl_item_spilled place = value_write();
        struct sl_msg reply, msg = {.type = SL_MSG_DISK_MEMBERS};
        msg.body.disk_members.epoch = 5;
        hang_set(true);
        fake_give(&fake, "registrar", &msg);
        hang_await();
        value_read(place);
        ck_assert(!fake_take_reply(&fake, "registrar", msg.seq, &reply));
        hang_set(false);
        answer_await(&msg, &reply);
        ck_assert_int_eq(reply.code, SL_OK);
    }
END_TEST

/* A log file that a killed tierer left without a footer gets one, and is truncated. */
START_TEST(values_are_read_while_a_file_is_being_cut)
    {
        struct sl_item_spilled place = value_write();
        fake_stop(&fake);
        actor_start();
        hang_set(true);
        struct sl_msg hello = {.type = SL_MSG_HELLO_REPLY};
        hello.body.hello_reply.boot_generation = 1;
        fake_give(&fake, "registrar", &hello);
        while (!hangs()) {
            struct pollfd ready = {.fd = event_fd, .events = POLLIN};
            if (poll(&ready, 1, 1) > 0) {
                disk->ops->reap(disk, hand_over, NULL);
            }
            fake_advance(&fake, SL_NS_PER_MS);
        }
        value_read(place);
        hang_set(false);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("disk_slow");
    TCase *calls = tcase_create("calls");
    tcase_set_timeout(calls, 20);
    tcase_add_checked_fixture(calls, disk_setup, disk_teardown);
    tcase_add_loop_test(calls, reads_go_on_while_a_call_hangs, 0, SL_COUNT(slow_verbs));
    tcase_add_loop_test(calls, a_disk_is_left_while_a_call_hangs, 0, SL_COUNT(slow_verbs));
    tcase_add_test(calls, a_call_that_fails_says_why);
    tcase_add_test(calls, all_segments_of_a_disk_are_open_at_once);
    suite_add_tcase(suite, calls);
    TCase *node = tcase_create("node");
    tcase_set_timeout(node, 20);
    tcase_add_checked_fixture(node, node_setup, node_teardown);
    tcase_add_test(node, values_are_read_while_a_file_is_being_made);
    tcase_add_test(node, values_are_read_while_a_file_is_being_cut);
    suite_add_tcase(suite, node);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
