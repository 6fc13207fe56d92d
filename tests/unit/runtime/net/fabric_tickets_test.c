/* tests/unit/runtime/net/fabric_tickets_test.c - tickets of many ranges over verbs, on a NIC played
 * by the test: bound or registered in slices, all or nothing, ended in slices, in parallel with
 * each other and with transfers. */
#include "runtime/net/fabric/core/internal.h"
#include "tests/support/fabric_end.h"
#include "tests/support/fake_verbs.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LANES   2u
#define BLOCK   256u /* of a range; gaps between ranges are as long */
#define MOST    SL_FABRIC_PLACES_MAX
#define LENGTH  (4u * MOST * BLOCK) /* of two tickets */
#define CONTROL 64u                 /* binds and invalidations under way on a queue pair */

static struct fabric_end a, b; /* a reads, b grants */
static struct sl_fabric_options options_a, options_b;
static struct sl_fabric_place places[MOST];
static uint32_t regions_before;

static void setup(void)
{
    struct sl_verbs_lib *lib = fake_verbs_lib();
    end_options(&a, &options_a, "verbs");
    end_options(&b, &options_b, "verbs");
    options_a.backend_context = options_b.backend_context = lib;
    options_a.lanes = options_b.lanes = LANES;
    options_a.backoff_min_ns = options_b.backoff_min_ns = SL_NS_PER_MS;
    options_a.backoff_max_ns = options_b.backoff_max_ns = SL_NS_PER_MS;
    fake_verbs.windows = true;
    fake_verbs.fail_code = ENOMEM;
    b.unread = true;
    b.stride_bytes = BLOCK;
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
    ck_assert_uint_eq(fake_verbs.regions, 0);
    ck_assert_uint_eq(fake_verbs.windows_made, 0);
    ck_assert_uint_eq(fake_verbs.bound, 0);
    ck_assert_uint_le(fake_verbs.controls_peak, CONTROL);
}

static void open_both(void)
{
    struct sl_error why = {0};
    ck_assert_int_eq(end_open(&a, &options_a, LENGTH, 0, &why), SL_OK);
    ck_assert_int_eq(end_open(&b, &options_b, LENGTH, 0, &why), SL_OK);
}

static void meet(void)
{
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
    pattern_fill(a.bytes, LENGTH, 1);
    pattern_fill(b.bytes, LENGTH, 2);
    regions_before = fake_verbs.regions;
}

static void join(void)
{
    open_both();
    meet();
}

struct ticket {
    uint32_t grant, ranges, first;
};

/* Adds a ticket of every second block from number `first` on. */
static sl_err ticket_try(struct ticket *ticket, uint32_t ranges, uint32_t first,
                         struct sl_error *why)
{
    for (uint32_t i = 0; i < ranges; i++) {
        places[i] = (struct sl_fabric_place){.memory = b.memory,
                                             .offset_bytes = (uint64_t)(first + 2 * i) * BLOCK,
                                             .length_bytes = BLOCK};
    }
    const struct sl_fabric_grant want = {.peer = b.peer,
                                         .length_bytes = (uint64_t)ranges * BLOCK,
                                         .places = places,
                                         .place_count = ranges};
    ticket->ranges = ranges;
    ticket->first = first;
    return sl_fabric_grant_add(b.fabric, &want, &ticket->grant, why);
}

static void ticket_add(struct ticket *ticket, uint32_t ranges, uint32_t first)
{
    struct sl_error why = {0};
    sl_err err = ticket_try(ticket, ranges, first, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
}

static sl_err read_by(uint32_t key, uint64_t offset_bytes, uint64_t length_bytes, uint64_t cookie)
{
    memset(a.bytes, 0, LENGTH);
    ck_assert_int_eq(end_post(&a, key, offset_bytes, length_bytes, cookie, SL_NEVER_NS), SL_OK);
    PAIR_UNTIL(&a, &b, end_done_of(&a, cookie) != NULL);
    return end_done_of(&a, cookie)->code;
}

/* Checks that the bytes of all ranges have arrived, and none after them. */
static void landed(const struct ticket *ticket)
{
    static const unsigned char none[BLOCK];
    const unsigned char *ours = a.bytes;
    for (uint32_t i = 0; i < ticket->ranges; i++, ours += BLOCK) {
        ck_assert_mem_eq(b.bytes + (uint64_t)(ticket->first + 2 * i) * BLOCK, ours, BLOCK);
    }
    ck_assert_mem_eq(ours, none, BLOCK);
}

static void ticket_end(const struct ticket *ticket)
{
    uint32_t before = b.grants_ended;
    ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket->grant), SL_OK);
    PAIR_UNTIL(&a, &b, b.grants_ended > before);
    ck_assert_uint_eq(b.grant_last, ticket->grant);
}

static void nothing_is_left(void)
{
    ck_assert_uint_eq(fake_verbs.bound, 0);
    ck_assert_uint_eq(fake_verbs.regions, regions_before);
    ck_assert_uint_eq(b.fabric->places.used_count, 0);
}

static void turns(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_fabric_step(b.fabric, end_now(&b));
    }
}

/* ---- the whole way ---- */

static const uint32_t counts[] = {1, 64, 65, 200, MOST};
#define WAYS ((int)(2 * SL_COUNT(counts)))

/* With windows, and with registrations of the ticket's own. */
START_TEST(a_ticket_of_many_ranges_lets_a_peer_in_and_ends)
    {
        static struct ticket ticket;
        uint32_t ranges = counts[_i / 2], made = 0;
        fake_verbs.windows = _i % 2 == 0;
        join();
        for (uint32_t round = 1; round <= 2; round++) { /* the second has windows that were used */
            ticket_add(&ticket, ranges, 0);
            uint32_t key = pair_key(&b, &a);
            ck_assert_uint_eq(fake_verbs.bound, fake_verbs.windows ? LANES * ranges : 0);
            ck_assert_int_eq(read_by(key, 0, (uint64_t)ranges * BLOCK, 2 * round), SL_OK);
            landed(&ticket);
            ticket_end(&ticket);
            nothing_is_left();
            ck_assert(round == 1 || fake_verbs.windows_made == made);
            made = fake_verbs.windows_made;
            ck_assert_int_eq(a.link, SL_FABRIC_UP); /* nothing broke */
            ck_assert_int_ne(read_by(key, (uint64_t)(ranges - 1) * BLOCK, 8, 2 * round + 1), SL_OK);
            PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
            sl_fabric_key_close(a.fabric, key);
        }
    }
END_TEST

/* The peer does not get a region's key, and could not use one. */
START_TEST(the_key_of_a_region_is_no_ticket)
    {
        static struct ticket ticket;
        fake_verbs.windows = _i == 0;
        join();
        ticket_add(&ticket, 2, 0);
        uint32_t key = pair_key(&b, &a);
        struct fabric_right *held = &a.fabric->rails[0]->rights[key & 0xffffu];
        uint32_t region = b.fabric->rails[0]->mappings[b.memory & 0xffffu].regions[0].rkey;
        ck_assert_int_eq(read_by(key, 0, BLOCK, 1), SL_OK);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_ne(held->regions[i].rkey, region);
            held->regions[i].rkey = region;
        }
        for (uint32_t i = 0; held->lane_rkeys != NULL && i < 2 * LANES; i++) {
            ck_assert_uint_ne(held->lane_rkeys[i], region);
            held->lane_rkeys[i] = region;
        }
        ck_assert_int_eq(read_by(key, 0, BLOCK, 2), SL_ERR_PERMISSION);
    }
END_TEST

/* A step does only a part: 1024 registrations at once would delay everything else. */
START_TEST(no_turn_makes_them_all)
    {
        static struct ticket ticket;
        uint32_t before = 0, most = 0;
        fake_verbs.windows = _i == 0;
        join();
        ticket_add(&ticket, MOST, 0);
        while (b.granted == 0) {
            uint32_t now = fake_verbs.windows ? fake_verbs.windows_made : fake_verbs.regions;
            most = before == 0 ? most : SL_MAX(most, now - before);
            before = now;
            turns(1);
        }
        ck_assert_uint_le(most, 128);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        before = fake_verbs.windows ? fake_verbs.bound : fake_verbs.regions;
        most = 0;
        while (b.grants_ended == 0) {
            turns(1);
            uint32_t now = fake_verbs.windows ? fake_verbs.bound : fake_verbs.regions;
            most = SL_MAX(most, before - now);
            before = now;
        }
        ck_assert_uint_le(most, 128);
        nothing_is_left();
    }
END_TEST

/* ---- what fails ---- */

/* In the first slice and in later ones, on the first lane and on the last. */
static const uint32_t steps[] = {1, 2, 31, 33, 64, 65, 129, 400};
#define TICKET 200u /* ranges: 400 windows */

static void ticket_fails(int os_code)
{
    static struct ticket ticket;
    uint64_t downs = b.downs;
    ticket_add(&ticket, TICKET, 0);
    PAIR_UNTIL(&a, &b, b.grants_failed == 1);
    ck_assert_uint_eq(b.granted, 0);
    ck_assert_int_ne(b.grant_why.code, SL_OK);
    ck_assert_int_eq(b.grant_why.os_code, os_code);
    ck_assert_uint_eq(fake_verbs.bound, 0); /* before the failure is reported */
    ck_assert_uint_eq(fake_verbs.regions, regions_before);
    ticket_end(&ticket);
    nothing_is_left();
    ck_assert_uint_eq(b.downs, downs); /* the link has nothing to do with it */
    ticket_add(&ticket, TICKET, 0);
    uint32_t key = pair_key(&b, &a);
    ck_assert_int_eq(read_by(key, 0, TICKET * BLOCK, 1), SL_OK);
    landed(&ticket);
}

START_TEST(a_window_that_there_is_not_takes_the_others_back)
    {
        join();
        fake_verbs.fail_window_at = steps[_i];
        ticket_fails(ENOMEM);
    }
END_TEST

START_TEST(a_bind_that_is_not_taken_takes_the_others_back)
    {
        join();
        fake_verbs.fail_bind_at = steps[_i];
        fake_verbs.fail_code = EINVAL;
        ticket_fails(EINVAL);
    }
END_TEST

START_TEST(a_registration_that_fails_takes_the_others_back)
    {
        fake_verbs.windows = false;
        join();
        fake_verbs.fail_at = fake_verbs.asked + SL_MIN(steps[_i], TICKET);
        ticket_fails(ENOMEM);
    }
END_TEST

/* A bind that ends in an error breaks the queue pairs, and all bindings with them. */
START_TEST(a_bind_that_breaks_the_link_leaves_nothing)
    {
        static struct ticket ticket;
        join();
        fake_verbs.error_bind_at = steps[_i];
        ticket_add(&ticket, TICKET, 0);
        PAIR_UNTIL(&a, &b, b.downs == 1);
        ck_assert_uint_eq(b.granted, 0);
        ck_assert_uint_eq(fake_verbs.bound, 0);
        ticket_end(&ticket);
        nothing_is_left();
        PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
        ticket_add(&ticket, TICKET, 0);
        uint32_t key = pair_key(&b, &a);
        ck_assert_int_eq(read_by(key, 0, TICKET * BLOCK, 1), SL_OK);
        landed(&ticket);
    }
END_TEST

START_TEST(more_windows_than_the_device_has_are_refused)
    {
        static struct ticket first, second;
        struct sl_error why = {0};
        fake_verbs.windows_most = LANES * 300;
        join();
        ck_assert_int_eq(ticket_try(&first, 301, 0, &why), SL_ERR_LIMIT);
        ticket_add(&first, 200, 0);
        ck_assert_int_eq(ticket_try(&second, 101, 1, &why), SL_ERR_LIMIT);
        ck_assert_uint_eq(b.fabric->places.used_count, 200);
        ticket_end(&first);
        nothing_is_left();
        ticket_add(&second, 300, 0);
        (void)pair_key(&b, &a);
        ticket_end(&second);
    }
END_TEST

static void refused(uint32_t lanes, uint32_t ranges)
{
    static struct ticket ticket;
    struct sl_error why = {0};
    options_a.lanes = options_b.lanes = lanes;
    join();
    ck_assert_int_eq(ticket_try(&ticket, ranges + 1, 0, &why), SL_ERR_LIMIT);
    nothing_is_left();
    ticket_add(&ticket, ranges, 0);
    uint32_t key = pair_key(&b, &a);
    ck_assert_int_eq(read_by(key, 0, (uint64_t)ranges * BLOCK, 1), SL_OK);
    landed(&ticket);
}

/* A key has at most 64 KiB, and contains a number for each range and lane. */
START_TEST(a_key_that_is_too_long_is_refused)
    {
        static const struct {
            uint32_t lanes, ranges;
        } longest[] = {{10, 1023}, {16, 744}};
        refused(longest[_i].lanes, longest[_i].ranges);
    }
END_TEST

/* ---- in the middle ---- */

/* Completions are withheld: as many windows are bound as a queue allows. */
static void half_bound(struct ticket *ticket)
{
    fake_verbs.holds = true;
    ticket_add(ticket, TICKET, 0);
    turns(100);
    ck_assert_uint_eq(fake_verbs.bound, LANES * CONTROL);
    ck_assert_uint_eq(b.granted, 0);
}

static void release_until_ended(void)
{
    while (fake_verbs.bound > 0 || b.grants_ended == 0) {
        fake_verbs_release(1);
        turns(1);
        ck_assert(b.grants_ended == 0 || fake_verbs.bound == 0);
    }
}

START_TEST(a_ticket_that_ends_half_bound_tells_its_end_after_the_last)
    {
        static struct ticket ticket;
        join();
        half_bound(&ticket);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        turns(10);
        ck_assert_uint_eq(b.grants_ended, 0);
        uint32_t binds = fake_verbs.binds;
        release_until_ended();
        ck_assert_uint_eq(fake_verbs.binds, binds); /* no more were bound */
        ck_assert_uint_eq(b.granted + b.grants_failed, 0);
        nothing_is_left();
    }
END_TEST

/* During the last invalidation no access works, but the end is reported only after it. */
START_TEST(the_fence_waits_for_the_last_invalidation)
    {
        static struct ticket ticket;
        join();
        ticket_add(&ticket, 5, 0);
        (void)pair_key(&b, &a);
        fake_verbs.holds = true;
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        for (uint32_t i = 0; i < 5 * LANES; i++) {
            turns(3);
            ck_assert_uint_eq(b.grants_ended, 0);
            fake_verbs_release(1);
        }
        turns(1);
        ck_assert_uint_eq(b.grants_ended, 1);
    }
END_TEST

/* Work of the old queue pairs ends late, and is ignored. */
START_TEST(a_link_that_breaks_half_bound_leaves_nothing)
    {
        static struct ticket ticket;
        bool ending = _i == 1;
        join();
        half_bound(&ticket);
        if (ending) {
            ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        }
        const struct sl_error why = {.code = SL_ERR_PEER_DIED};
        fabric_peer_fail(&b.fabric->rails[0]->peers[b.peer & 0xffffu], &why);
        ck_assert_uint_eq(fake_verbs.bound, 0);
        fake_verbs_release(UINT32_MAX);
        fake_verbs.holds = false;
        if (ending) {
            PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        } else {
            ticket_end(&ticket);
        }
        ck_assert_uint_eq(b.granted, 0);
        nothing_is_left();
        PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP && a.downs > 0);
        ticket_add(&ticket, TICKET, 0);
        uint32_t key = pair_key(&b, &a);
        ck_assert_int_eq(read_by(key, 0, TICKET * BLOCK, 1), SL_OK);
        landed(&ticket);
    }
END_TEST

/* Its ticket is the first of all grants, and the other peer the first of all peers. */
START_TEST(a_peer_that_goes_takes_no_ticket_of_another)
    {
        static struct ticket ticket;
        struct sl_error why = {0};
        uint32_t other = 0;
        fake_verbs.windows = _i == 0;
        open_both();
        other = b.peer;
        ck_assert_int_eq(sl_fabric_peer_add(b.fabric, &b.peer, &why), SL_OK);
        sl_fabric_peer_remove(b.fabric, other);
        meet();
        ticket_add(&ticket, 2, 0);
        uint32_t key = pair_key(&b, &a);
        ck_assert_int_eq(sl_fabric_peer_add(b.fabric, &other, &why), SL_OK);
        ck_assert_uint_eq(other & 0xffffu, 0);
        turns(1); /* its queue pairs are made */

        sl_fabric_peer_remove(b.fabric, other);

        ck_assert_int_eq(read_by(key, 0, 2 * BLOCK, 1), SL_OK);
        landed(&ticket);
        ticket_end(&ticket);
    }
END_TEST

START_TEST(a_link_that_breaks_half_registered_leaves_nothing)
    {
        static struct ticket ticket;
        fake_verbs.windows = false;
        join();
        ticket_add(&ticket, MOST, 0);
        turns(3);
        ck_assert_uint_gt(fake_verbs.regions, regions_before);
        ck_assert_uint_eq(b.granted, 0);
        if (_i == 0) {
            const struct sl_error why = {.code = SL_ERR_PEER_DIED};
            fabric_peer_fail(&b.fabric->rails[0]->peers[b.peer & 0xffffu], &why);
        } else {
            sl_fabric_peer_remove(b.fabric, b.peer);
        }
        turns(100);
        ck_assert_uint_eq(fake_verbs.regions, regions_before);
        ck_assert_uint_eq(b.granted + b.grants_failed, 0);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        turns(1);
        ck_assert_uint_eq(b.grants_ended, 1);
        nothing_is_left();
    }
END_TEST

/* A fabric closes with tickets in each state; teardown counts leftovers. */
START_TEST(a_fabric_that_closes_leaves_nothing)
    {
        static struct ticket tickets[3];
        fake_verbs.windows = _i % 2 == 0;
        join();
        ticket_add(&tickets[0], TICKET, 0);
        ticket_add(&tickets[1], 64, 1);
        turns((uint32_t)_i / 2 * 3);
        ticket_add(&tickets[2], MOST, 2 * MOST);
        (void)sl_fabric_grant_end(b.fabric, tickets[0].grant);
        turns((uint32_t)_i / 2);
    }
END_TEST

/* ---- beside others ---- */

/* Both make progress in each other's gaps, whichever began first, even when slots are scarce. */
START_TEST(two_tickets_are_bound_beside_each_other)
    {
        static struct ticket first, second;
        join();
        fake_verbs.holds = _i > 0;
        ticket_add(&first, MOST, 0);
        turns(_i > 0 ? 100 : 2);
        ticket_add(&second, 65, 2 * MOST);
        while (b.granted == 0) {
            fake_verbs_release((uint32_t)_i * LANES);
            turns(1);
        }
        fake_verbs.holds = false;
        fake_verbs_release(UINT32_MAX);
        ck_assert_uint_lt(fake_verbs.binds, LANES * MOST / 2); /* the small one is ready first */
        uint32_t key_2 = 0;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, b.key, b.key_bytes, &key_2, &why),
                         SL_OK);
        ck_assert_int_eq(read_by(key_2, 0, 65 * BLOCK, 1), SL_OK);
        landed(&second);
        uint32_t key_1 = 0;
        PAIR_UNTIL(&a, &b, b.granted == 2);
        ck_assert_int_eq(sl_fabric_key_open(a.fabric, a.peer, b.key, b.key_bytes, &key_1, &why),
                         SL_OK);
        ck_assert_int_eq(read_by(key_1, 0, MOST * BLOCK, 2), SL_OK);
        landed(&first);
        ticket_end(&first);
        ck_assert_uint_eq(fake_verbs.bound, LANES * 65);
        ticket_end(&second);
        nothing_is_left();
    }
END_TEST

/* No bind or invalidation completes, and the maximum is in progress: b still reads. */
START_TEST(transfers_go_on_while_windows_wait)
    {
        static struct ticket ticket;
        uint32_t key = 0;
        join();
        (void)pair_grant(&a, &b, 0, LENGTH, &key);
        half_bound(&ticket);
        ck_assert_int_eq(end_post(&b, key, 0, LENGTH, 1, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 1) != NULL);
        ck_assert_int_eq(end_done_of(&b, 1)->code, SL_OK);
        ck_assert(pattern_is(b.bytes, LENGTH, 1));
        ck_assert_uint_eq(fake_verbs.bound, LANES * CONTROL);
        fake_verbs.holds = false;
        fake_verbs_release(UINT32_MAX);
        PAIR_UNTIL(&a, &b, b.granted == 1);
        ck_assert_uint_eq(fake_verbs.bound, LANES * TICKET);
        fake_verbs.holds = true;
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, ticket.grant), SL_OK);
        turns(100);
        ck_assert_int_eq(end_post(&b, key, 0, LENGTH, 2, SL_NEVER_NS), SL_OK);
        PAIR_UNTIL(&a, &b, end_done_of(&b, 2) != NULL);
        ck_assert_uint_eq(b.grants_ended, 0);
        release_until_ended();
    }
END_TEST

/* ---- several NICs ---- */

static void rails_join(void)
{
    options_a.nic = options_b.nic = "fake0,fake0";
    join();
}

static void rails_ticket(struct ticket *ticket, uint32_t ranges)
{
    struct sl_error why = {0};
    sl_err err = ticket_try(ticket, ranges, 0, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    uint32_t key = pair_key(&b, &a);
    ck_assert_int_eq(read_by(key, 0, (uint64_t)ranges * BLOCK, 1), SL_OK);
    ck_assert_int_eq(read_by(key, 0, (uint64_t)ranges * BLOCK, 2), SL_OK); /* the other's turn */
    landed(ticket);
    ck_assert_uint_eq(a.downs, 0);
}

/* Both rails' keys form one; two of 1024 ranges exceed 64 KiB with 2 lanes: one is left out. */
START_TEST(a_ticket_of_two_rails_brings_one_key)
    {
        static struct ticket ticket;
        rails_join();
        rails_ticket(&ticket, counts[_i]);
        ticket_end(&ticket);
        ck_assert_uint_eq(fake_verbs.bound, 0);
    }
END_TEST

/* One rail has no windows left: the ticket is only for the other one, and the first gets no
 * requests for it. */
START_TEST(a_rail_that_fails_is_not_in_the_key)
    {
        static struct ticket ticket;
        uint32_t ranges = _i < 2 ? TICKET : 64;
        rails_join();
        fake_verbs.fail_code = EINVAL;
        fake_verbs.fail_bind_at = _i % 2 == 0 ? 3 : 90;
        rails_ticket(&ticket, ranges);
        ck_assert_uint_eq(fake_verbs.bound, LANES * ranges);
        ticket_end(&ticket);
        ck_assert_uint_eq(fake_verbs.bound, 0);
    }
END_TEST

START_TEST(a_ticket_that_all_rails_refuse_says_why)
    {
        static struct ticket ticket;
        struct sl_error why = {0};
        rails_join();
        ck_assert_int_eq(ticket_try(&ticket, TICKET, 0, &why), SL_OK);
        turns(2);
        ck_assert_uint_gt(fake_verbs.bound, 0);
        fake_verbs.windows_out = true;
        PAIR_UNTIL(&a, &b, b.grants_failed == 1);
        ck_assert_uint_eq(b.granted, 0);
        ck_assert_int_eq(b.grant_why.os_code, ENOMEM);
        ck_assert_uint_eq(fake_verbs.bound, 0);
        ticket_end(&ticket);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("fabric_tickets");
    TCase *tests = tcase_create("tickets");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_ticket_of_many_ranges_lets_a_peer_in_and_ends, 0, WAYS);
    tcase_add_loop_test(tests, the_key_of_a_region_is_no_ticket, 0, 2);
    tcase_add_loop_test(tests, no_turn_makes_them_all, 0, 2);
    tcase_add_loop_test(tests, a_window_that_there_is_not_takes_the_others_back, 0,
                        (int)SL_COUNT(steps));
    tcase_add_loop_test(tests, a_bind_that_is_not_taken_takes_the_others_back, 0,
                        (int)SL_COUNT(steps));
    tcase_add_loop_test(tests, a_registration_that_fails_takes_the_others_back, 0,
                        (int)SL_COUNT(steps));
    tcase_add_loop_test(tests, a_bind_that_breaks_the_link_leaves_nothing, 0, (int)SL_COUNT(steps));
    tcase_add_test(tests, more_windows_than_the_device_has_are_refused);
    tcase_add_loop_test(tests, a_key_that_is_too_long_is_refused, 0, 2);
    tcase_add_test(tests, a_ticket_that_ends_half_bound_tells_its_end_after_the_last);
    tcase_add_test(tests, the_fence_waits_for_the_last_invalidation);
    tcase_add_loop_test(tests, a_link_that_breaks_half_bound_leaves_nothing, 0, 2);
    tcase_add_loop_test(tests, a_link_that_breaks_half_registered_leaves_nothing, 0, 2);
    tcase_add_loop_test(tests, a_peer_that_goes_takes_no_ticket_of_another, 0, 2);
    tcase_add_loop_test(tests, a_fabric_that_closes_leaves_nothing, 0, 12);
    tcase_add_loop_test(tests, two_tickets_are_bound_beside_each_other, 0, 3);
    tcase_add_test(tests, transfers_go_on_while_windows_wait);
    tcase_add_loop_test(tests, a_ticket_of_two_rails_brings_one_key, 0, (int)SL_COUNT(counts));
    tcase_add_loop_test(tests, a_rail_that_fails_is_not_in_the_key, 0, 4);
    tcase_add_test(tests, a_ticket_that_all_rails_refuse_says_why);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
