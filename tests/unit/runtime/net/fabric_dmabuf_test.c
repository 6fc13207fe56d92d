/* tests/unit/runtime/net/fabric_dmabuf_test.c - memory without a CPU address, on a NIC played by
 * the test: it is registered region by region, copied, and never touched by this process. */
#include "runtime/net/fabric/core/internal.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK    (64 * SL_KIB)
#define BLOCKS   16u
#define LENGTH   (BLOCKS * BLOCK)
#define OFFSET   (3 * SL_MIB + 4096) /* of the memory in its dmabuf */
#define A_SECOND SL_NS_PER_S

static struct fabric_end a, b; /* a asks, b owns an arena; a's memory is a dmabuf */
static struct sl_fabric_options options_a, options_b;
static struct sl_verbs_lib *lib;
static unsigned char *device_bytes; /* what the GPU would see */
static int device_fd;

static void setup(void)
{
    lib = fake_verbs_lib();
    end_options(&a, &options_a, "verbs");
    end_options(&b, &options_b, "verbs");
    options_a.backend_context = options_b.backend_context = lib;
    options_a.lanes = options_b.lanes = 2;
    options_a.region_bytes_max = 4 * BLOCK; /* four regions */
    device_fd = memfd_create("gpu", MFD_CLOEXEC);
    ck_assert_int_ge(device_fd, 0);
    ck_assert_int_eq(ftruncate(device_fd, OFFSET + LENGTH), 0);
    unsigned char *all =
        mmap(NULL, OFFSET + LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, device_fd, 0);
    ck_assert(all != MAP_FAILED);
    device_bytes = all + OFFSET;
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
    ck_assert_uint_eq(fake_verbs.regions, 0);
    munmap(device_bytes - OFFSET, OFFSET + LENGTH);
    close(device_fd);
}

static sl_err device_add(bool close_behind, struct sl_error *why)
{
    int fd = fcntl(device_fd, F_DUPFD_CLOEXEC, 0);
    struct sl_fabric_dmabuf dmabuf = {.fd = fd, .offset_bytes = OFFSET};
    struct sl_fabric_memory memory = {
        .dmabuf = &dmabuf, .length_bytes = LENGTH, .stride_bytes = BLOCK, .unread = true};
    sl_err err = sl_fabric_memory_add(a.fabric, &memory, &a.memory, why);
    if (close_behind) {
        close(fd);
    }
    return err;
}

static void open_both(void)
{
    struct sl_error why = {0};
    ck_assert_int_eq(end_open(&a, &options_a, 0, 0, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, LENGTH, 0, &why), SL_OK);
    PAIR_UNTIL(&a, &b, b.registered);
}

static void open_linked(void)
{
    struct sl_error why = {0};
    open_both();
    ck_assert_msg(device_add(true, &why) == SL_OK, "%s", why.text);
    PAIR_UNTIL(&a, &b, a.registered && a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
}

static sl_err done_of(uint64_t cookie)
{
    PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
    return end_done_of(&a, cookie)->code;
}

START_TEST(regions_of_a_dmabuf_are_cut_as_of_any_pool)
    {
        struct sl_fabric_stats stats;
        open_linked();
        sl_fabric_stats(a.fabric, &stats);
        ck_assert_uint_eq(stats.regions, LENGTH / (4 * BLOCK));
        ck_assert_uint_eq(fake_verbs.dmabufs, stats.regions);
        ck_assert_int_eq(fabric_memory_drop(a.fabric, a.memory), SL_OK);
        ck_assert_uint_eq(fake_verbs.dmabufs, 0);
    }
END_TEST

/* Across all regions, and from other offsets. */
START_TEST(bytes_of_a_peer_land_in_a_dmabuf)
    {
        uint32_t key = 0;
        open_linked();
        pattern_fill(b.bytes, LENGTH, 7);
        (void)pair_grant(&b, &a, 0, LENGTH, &key);
        ck_assert_int_eq(end_post(&a, key, 0, LENGTH, 1, SL_NEVER_NS), SL_OK);
        ck_assert_int_eq(done_of(1), SL_OK);
        ck_assert(pattern_is(device_bytes, LENGTH, 7));

        struct sl_fabric_place places[2] = {
            {.memory = a.memory, .offset_bytes = 10 * BLOCK, .length_bytes = BLOCK},
            {.memory = a.memory, .offset_bytes = 0, .length_bytes = 64}};
        struct sl_fabric_piece piece = {
            .key = key, .length_bytes = BLOCK + 64, .places = places, .place_count = 2};
        struct sl_fabric_transfer transfer = {.peer = a.peer,
                                              .pieces = &piece,
                                              .piece_count = 1,
                                              .deadline_ns = SL_NEVER_NS,
                                              .cookie = 2};
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        ck_assert_int_eq(done_of(2), SL_OK);
        ck_assert_mem_eq(device_bytes + 10 * BLOCK, b.bytes, BLOCK);
        ck_assert_mem_eq(device_bytes, b.bytes + BLOCK, 64);
    }
END_TEST

/* With windows, and with registrations of the ticket's own. After its end no byte arrives. */
START_TEST(a_ticket_of_a_dmabuf_lets_a_peer_in)
    {
        uint32_t key = 0;
        fake_verbs.windows = _i == 1;
        open_linked();
        pattern_fill(device_bytes, LENGTH, 11);
        uint32_t grant = pair_grant(&a, &b, BLOCK, 2 * BLOCK + 8, &key);
        ck_assert_int_eq(end_post(&b, key, BLOCK, 2 * BLOCK + 8, 1, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 1) != NULL);
        ck_assert_int_eq(end_done_of(&b, 1)->code, SL_OK);
        ck_assert_mem_eq(device_bytes + BLOCK, b.bytes + BLOCK, 2 * BLOCK + 8);
        ck_assert_int_eq(sl_fabric_grant_end(a.fabric, grant), SL_OK);
        PAIR_UNTIL(&a, &b, a.grants_ended == 1);
        ck_assert_int_eq(end_post(&b, key, BLOCK, 8, 2, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 2) != NULL);
        ck_assert_int_ne(end_done_of(&b, 2)->code, SL_OK);
    }
END_TEST

START_TEST(a_ticket_whose_own_registration_fails_leaves_nothing)
    {
        struct sl_error why = {0};
        uint32_t grant = 0;
        open_linked();
        struct sl_fabric_place places[3] = {
            {a.memory, 0, BLOCK}, {a.memory, 2 * BLOCK, BLOCK}, {a.memory, 5 * BLOCK, BLOCK}};
        struct sl_fabric_grant want = {
            .peer = a.peer, .length_bytes = 3 * BLOCK, .places = places, .place_count = 3};
        uint32_t before = fake_verbs.regions;
        fake_verbs.fail_at = fake_verbs.asked + 1 + (uint32_t)_i;
        fake_verbs.fail_code = ENOMEM;
        ck_assert_int_eq(sl_fabric_grant_add(a.fabric, &want, &grant, &why), SL_OK);
        PAIR_UNTIL(&a, &b, a.grants_failed == 1);
        ck_assert_int_eq(a.grant_why.os_code, ENOMEM);
        ck_assert_uint_eq(fake_verbs.regions, before);
    }
END_TEST

/* ---- what is refused ---- */

START_TEST(a_digest_of_bytes_in_a_dmabuf_is_refused)
    {
        uint32_t key = 0;
        struct sl_digest digest = {0};
        struct sl_error why = {0};
        open_linked();
        (void)pair_grant(&b, &a, 0, LENGTH, &key);
        struct sl_fabric_place place = {a.memory, 0, BLOCK};
        struct sl_fabric_piece piece = {.memory = a.memory,
                                        .key = key,
                                        .length_bytes = BLOCK,
                                        .digest = &digest,
                                        .places = _i == 1 ? &place : NULL,
                                        .place_count = (uint32_t)_i};
        struct sl_fabric_transfer transfer = {.peer = a.peer,
                                              .pieces = &piece,
                                              .piece_count = 1,
                                              .deadline_ns = SL_NEVER_NS,
                                              .cookie = 1};
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, &why), SL_ERR_INVALID);
    }
END_TEST

static const struct {
    int os_code;
    sl_err want;
} refusals[] = {
    {EOPNOTSUPP, SL_ERR_UNSUPPORTED}, {EINVAL, SL_ERR_UNSUPPORTED}, {ENOMEM, SL_ERR_OS}};
#define REGIONS ((int)(LENGTH / (4 * BLOCK)))

static struct sl_error told;
static void registered(void *context, uint32_t memory, uint32_t region_index,
                       const struct sl_error *why)
{
    struct fabric_end *end = context;
    (void)memory;
    end->registered = why->code == SL_OK;
    end->refused = why->code != SL_OK;
    end->register_region = region_index;
    told = *why;
}

/* The k-th region fails: earlier ones and the descriptor are released, the reason reported. */
START_TEST(a_region_that_fails_takes_the_others_back)
    {
        uint32_t at = (uint32_t)(_i % REGIONS);
        struct sl_error why = {0};
        options_a.events.registered = registered;
        open_both();
        uint32_t before = fake_verbs.regions;
        fake_verbs.fail_at = fake_verbs.asked + 1 + at;
        fake_verbs.fail_code = refusals[_i / REGIONS].os_code;
        ck_assert_int_eq(device_add(true, &why), SL_OK);
        PAIR_UNTIL(&a, &b, a.refused);
        ck_assert_uint_eq(a.register_region, at);
        if (refusals[_i / REGIONS].want == SL_ERR_UNSUPPORTED) {
            ck_assert_int_eq(told.code, SL_ERR_UNSUPPORTED);
        } else {
            ck_assert_int_ne(told.code, SL_ERR_UNSUPPORTED);
        }
        ck_assert_uint_eq(fake_verbs.regions, before);
        a.refused = false; /* and the next try works */
        ck_assert_int_eq(device_add(true, &why), SL_OK);
        PAIR_UNTIL(&a, &b, a.registered);
    }
END_TEST

START_TEST(a_memory_that_is_given_up_half_way_closes_all)
    {
        struct sl_error why = {0};
        bool gone = false;
        int before = fcntl(device_fd, F_DUPFD, 0), after = -1;
        close(before);
        open_both();
        uint32_t regions = fake_verbs.regions;
        ck_assert_int_eq(device_add(true, &why), SL_OK);
        for (int i = 0; i < _i; i++) {
            end_step(&a, 0);
        }
        while (!gone) {
            ck_assert_int_eq(sl_fabric_memory_remove_step(a.fabric, a.memory, &gone), SL_OK);
        }
        ck_assert_uint_eq(fake_verbs.regions, regions);
        end_close(&a);
        end_close(&b);
        after = fcntl(device_fd, F_DUPFD, 0);
        ck_assert_int_eq(after, before); /* no descriptor is left */
        close(after);
    }
END_TEST

START_TEST(a_library_without_dmabufs_says_so)
    {
        struct sl_error why = {0};
        lib->verbs_reg_dmabuf_mr = NULL;
        open_both();
        ck_assert_int_eq(sl_fabric_dmabuf_check(a.fabric, &why), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(device_add(true, &why), SL_ERR_UNSUPPORTED);
    }
END_TEST

START_TEST(tcp_takes_no_dmabuf)
    {
        struct sl_error why = {0};
        end_options(&a, &options_a, "tcp");
        options_a.address = "127.0.0.1";
        ck_assert_int_eq(end_open(&a, &options_a, 0, 0, &why), SL_OK);
        ck_assert_int_eq(sl_fabric_dmabuf_check(a.fabric, &why), SL_ERR_UNSUPPORTED);
        ck_assert_int_eq(device_add(true, &why), SL_ERR_UNSUPPORTED);
    }
END_TEST

START_TEST(memory_is_at_an_address_or_in_a_dmabuf)
    {
        struct sl_error why = {0};
        struct sl_fabric_dmabuf dmabuf = {.fd = device_fd};
        struct sl_fabric_memory both = {
            .at = device_bytes, .dmabuf = &dmabuf, .length_bytes = LENGTH, .stride_bytes = BLOCK};
        struct sl_fabric_memory closed = {
            .dmabuf = &dmabuf, .length_bytes = LENGTH, .stride_bytes = BLOCK};
        open_both();
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &both, &a.memory, &why), SL_ERR_INVALID);
        dmabuf.offset_bytes = INT64_MAX - LENGTH + 1;
        ck_assert_int_eq(sl_fabric_memory_add(a.fabric, &closed, &a.memory, &why), SL_ERR_INVALID);
        dmabuf = (struct sl_fabric_dmabuf){.fd = 1000};
        ck_assert_int_ne(sl_fabric_memory_add(a.fabric, &closed, &a.memory, &why), SL_OK);
    }
END_TEST

/* ---- several NICs ---- */

START_TEST(each_rail_registers_it_and_no_digest_passes)
    {
        uint32_t key = 0;
        struct sl_digest digest = {0};
        options_a.nic = options_b.nic = "fake0,fake0";
        open_linked();
        ck_assert_uint_eq(fake_verbs.dmabufs, 2 * REGIONS);
        pattern_fill(b.bytes, LENGTH, 5);
        (void)pair_grant(&b, &a, 0, LENGTH, &key);
        struct sl_fabric_piece pieces[2] = {
            {.memory = a.memory, .key = key, .length_bytes = LENGTH / 2},
            {.memory = a.memory,
             .key = key,
             .offset_bytes = LENGTH / 2,
             .remote_offset_bytes = LENGTH / 2,
             .length_bytes = LENGTH / 2,
             .digest = &digest}};
        struct sl_fabric_transfer transfer = {.peer = a.peer,
                                              .pieces = pieces,
                                              .piece_count = 2,
                                              .deadline_ns = SL_NEVER_NS,
                                              .cookie = 1};
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_ERR_INVALID);
        pieces[1].digest = NULL;
        ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
        ck_assert_int_eq(done_of(1), SL_OK);
        ck_assert(pattern_is(device_bytes, LENGTH, 5));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_dmabuf");
    TCase *tests = tcase_create("dmabuf");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, regions_of_a_dmabuf_are_cut_as_of_any_pool);
    tcase_add_test(tests, bytes_of_a_peer_land_in_a_dmabuf);
    tcase_add_loop_test(tests, a_ticket_of_a_dmabuf_lets_a_peer_in, 0, 2);
    tcase_add_loop_test(tests, a_ticket_whose_own_registration_fails_leaves_nothing, 0, 3);
    tcase_add_loop_test(tests, a_digest_of_bytes_in_a_dmabuf_is_refused, 0, 2);
    tcase_add_loop_test(tests, a_region_that_fails_takes_the_others_back, 0,
                        (int)SL_COUNT(refusals) * REGIONS);
    tcase_add_loop_test(tests, a_memory_that_is_given_up_half_way_closes_all, 0, REGIONS + 2);
    tcase_add_test(tests, a_library_without_dmabufs_says_so);
    tcase_add_test(tests, tcp_takes_no_dmabuf);
    tcase_add_test(tests, memory_is_at_an_address_or_in_a_dmabuf);
    tcase_add_test(tests, each_rail_registers_it_and_no_digest_passes);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
