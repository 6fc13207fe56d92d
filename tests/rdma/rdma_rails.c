/* tests/rdma/rdma_rails.c - both devices of the virtual machine as rails of one fabric, and fabric
 * `auto` on its sysfs. */
#include "tests/rdma/rdma_rails.h"
#include "runtime/net/fabric/core/tables.h"
#include "runtime/net/nics/nics.h"
#include "tests/support/fabric_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES 32u
#define PIECE  (256 * SL_KIB)
#define MEMORY (PIECES * PIECE)

static struct remote remote;
static struct fabric_end end;
static struct remote_options theirs;
static struct sl_fabric_options ours;

static void setup(void)
{
    end_options(&end, &ours, "verbs");
    ours.lanes = 2;
    ours.connect_ns = 20 * SL_NS_PER_S; /* everything is slow under emulation */
    ours.backoff_max_ns = SL_NS_PER_S / 2;
    ours.nic = "rxe0,rxe1";
    theirs = (struct remote_options){.fabric = ours, .length_bytes = MEMORY};
}

static void teardown(void)
{
    remote_stop(&remote);
    end_close(&end);
    (void)!system("ip link set eth1 up");
}

static bool rail_is_up(uint32_t index)
{
    return fabric_link_of(fabric_peer_of(end.fabric->rails[index], end.peer)) == SL_FABRIC_UP;
}

static uint64_t rail_bytes(uint32_t index)
{
    return end.fabric->rails[index]->stats.read_bytes;
}

static void join(void)
{
    struct sl_error why = {0};
    remote_start(&remote, &theirs);
    sl_err err = end_open(&end, &ours, MEMORY, 0, &why);
    ck_assert_msg(err == SL_OK, "%s", why.text);
    REMOTE_UNTIL(&remote, &end, remote.ready);
    ck_assert_msg(remote.open_code == SL_OK, "%s", remote.why.text);
    REMOTE_UNTIL(&remote, &end, end.registered && rail_is_up(0) && rail_is_up(1));
}

static sl_err move_all(uint32_t key)
{
    static struct sl_fabric_piece pieces[PIECES];
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i] = (struct sl_fabric_piece){.memory = end.memory,
                                             .key = key,
                                             .offset_bytes = i * PIECE,
                                             .remote_offset_bytes = i * PIECE,
                                             .length_bytes = PIECE};
    }
    const struct sl_fabric_transfer transfer = {.peer = end.peer,
                                                .pieces = pieces,
                                                .piece_count = PIECES,
                                                .deadline_ns =
                                                    sl_clock_monotonic_ns() + 100 * SL_NS_PER_S};
    uint32_t before = end.done_count;
    ck_assert_int_eq(sl_fabric_post(end.fabric, &transfer, NULL), SL_OK);
    REMOTE_UNTIL(&remote, &end, end.done_count == before + 1);
    return end.dones[before % END_DONES_MAX].code;
}

/* Each rail uses the cable between the devices. */
START_TEST(both_devices_carry)
    {
        theirs.fabric.nic = "rxe1,rxe0";
        join();
        uint32_t read = remote_key(&remote, &end, 0, MEMORY);
        remote_fill(&remote, &end, 3);

        ck_assert_int_eq(move_all(read), SL_OK);

        ck_assert(pattern_is(end.bytes, MEMORY, 3));
        ck_assert_uint_eq(rail_bytes(0), MEMORY / 2);
        ck_assert_uint_eq(rail_bytes(1), MEMORY / 2);
    }
END_TEST

/* Each device is connected to itself, so taking a link down stops only one rail. */
START_TEST(one_device_down_and_up_costs_its_share)
    {
        join();
        uint32_t read = remote_key(&remote, &end, 0, MEMORY);
        remote_fill(&remote, &end, 5);
        ck_assert_int_eq(move_all(read), SL_OK);
        ck_assert_uint_eq(rail_bytes(1), MEMORY / 2);

        ck_assert_int_eq(system("ip link set eth1 down"), 0);
        memset(end.bytes, 0, MEMORY);
        ck_assert_int_eq(move_all(read), SL_OK);
        ck_assert(pattern_is(end.bytes, MEMORY, 5));
        ck_assert_int_eq(move_all(read), SL_OK);
        ck_assert_uint_ge(rail_bytes(0), 2 * MEMORY);
        ck_assert_uint_eq(end.downs, 0);

        ck_assert_int_eq(system("ip link set eth1 up"), 0);
        uint64_t give_up_ns = sl_clock_monotonic_ns() + 100 * SL_NS_PER_S, carried = rail_bytes(1);
        while (rail_bytes(1) == carried) {
            ck_assert_uint_lt(sl_clock_monotonic_ns(), give_up_ns);
            REMOTE_UNTIL(&remote, &end, rail_is_up(1));
            memset(end.bytes, 0, MEMORY);
            ck_assert_int_eq(move_all(read), SL_OK);
            ck_assert(pattern_is(end.bytes, MEMORY, 5));
        }
    }
END_TEST

START_TEST(auto_finds_both_devices)
    {
        static struct sl_nics nics;
        static struct sl_nic_plan plan;
        struct sl_error why = {0};
        const struct sl_nic_sources sources = {.list = "auto", .registered_index = -1};

        sl_nics_scan(SL_SYSFS, &nics);
        for (uint32_t i = 0; i < nics.count; i++) {
            printf("%s: %s, %s, %u GIDs, %s, mtu %u\n", nics.at[i].name, nics.at[i].state,
                   nics.at[i].layer, nics.at[i].gid_count, nics.at[i].netdev, nics.at[i].mtu_bytes);
        }

        ck_assert_uint_eq(nics.count, 2);
        ck_assert_msg(sl_nic_plan_make(&sources, &nics, 4, &plan, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(plan.count, 2);
        ck_assert_str_eq(nics.at[0].netdev, "eth0");
        ck_assert(nics.at[1].counted);
        ck_assert_int_eq(system("ip link set eth1 down"), 0);
        ck_assert(sl_nic_refresh(SL_SYSFS, &nics.at[1]));
        ck_assert(!sl_nic_is_active(&nics.at[1]));
    }
END_TEST

TCase *rdma_rails_tests(void)
{
    TCase *tests = tcase_create("rails");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 400);
    tcase_add_test(tests, auto_finds_both_devices);
    tcase_add_test(tests, both_devices_carry);
    tcase_add_test(tests, one_device_down_and_up_costs_its_share);
    return tests;
}
