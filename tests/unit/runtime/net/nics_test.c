/* tests/unit/runtime/net/nics_test.c - the choice of NIC: lists, and `auto` on made-up machines. */
#include "runtime/net/nics/nics.h"
#include "tests/support/fake_sysfs.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- lists ---- */

static const struct sl_gpu four_gpus[] = {{.uuid = "GPU-aaaa1111-0000", .index = 0},
                                          {.uuid = "GPU-aaaa2222-0000", .index = 1},
                                          {.uuid = "GPU-bbbb0000-0000", .index = 2},
                                          {.uuid = "GPU-cccc0000-0000", .index = 3}};

static const struct {
    const char *list, *visible;
    uint32_t rank;
    int64_t registered;
    const char *want; /* NULL: an error that names `error` */
    const char *error;
} lists[] = {
    {"", NULL, 0, -1, "", NULL},
    {NULL, NULL, 0, -1, "", NULL},
    {"mlx5_0", NULL, 7, -1, "mlx5_0", NULL}, /* one entry serves all */
    {" mlx5_0 ", "3", 0, -1, "mlx5_0", NULL},
    {"a,b,c,d", "2,3", 0, -1, "c", NULL}, /* physical index, not rank */
    {"a,b,c,d", "2,3", 1, -1, "d", NULL},
    {"a, b ,c,d", " 1 ,3", 0, -1, "b", NULL},
    {"a,b,c,d", "GPU-bbbb0000-0000,GPU-aaaa1111-0000", 0, -1, "c", NULL},
    {"a,b,c,d", "GPU-bbbb,GPU-aaaa1", 1, -1, "a", NULL}, /* shortened, still one */
    {"a,b,c,d", NULL, 0, 3, "d", NULL},
    {"a,b,c,d", "0", 0, 3, "d", NULL}, /* the engine's value wins */
    {"a,b", "2,3", 0, -1, NULL, "2 entries"},
    {"a,b", NULL, 0, 9, NULL, "2 entries"},
    {"a,b", NULL, 0, -1, NULL, "is unknown"},
    {"a,b", "0", 1, -1, NULL, "no entry for rank 1"},
    {"a,b", "", 0, -1, NULL, "no entry for rank 0"},
    {"a,,c", "0", 0, -1, NULL, "entry 1"},
    {"a,", "0", 0, -1, NULL, "entry 1"},
    {",", NULL, 0, -1, NULL, "entry 0"},
    {" ", NULL, 0, -1, NULL, "entry 0"},
    {"a,b", "GPU-dddd", 0, -1, NULL, "no GPU"},
    {"a,b", "GPU-aaaa", 0, -1, NULL, "more than one"},
    {"a,b", "MIG-1234", 0, -1, NULL, "no GPU"},
    {"a,b", "-1", 0, -1, NULL, "no GPU"},
    {"a,b", "99999999999", 0, -1, NULL, "no GPU"},
};

START_TEST(nic_follows_the_physical_gpu)
    {
        struct sl_nic_sources sources = {.list = lists[_i].list,
                                         .rank = lists[_i].rank,
                                         .visible_devices = lists[_i].visible,
                                         .gpus = four_gpus,
                                         .gpu_count = SL_COUNT(four_gpus),
                                         .registered_index = lists[_i].registered};
        char got[SL_NIC_NAME_BYTES] = "untouched";
        struct sl_error why = {0};

        sl_err err = sl_nic_choose(&sources, got, &why);

        if (lists[_i].want != NULL) {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_str_eq(got, lists[_i].want);
        } else {
            ck_assert_int_eq(err, SL_ERR_CONFIG);
            ck_assert_msg(strstr(why.text, lists[_i].error) != NULL, "%s", why.text);
            ck_assert_str_eq(got, "untouched");
        }
    }
END_TEST

/* FastDeploy: list[tp_rank mod n], whatever the rank's GPU is. */
static const struct {
    const char *list;
    uint32_t rank;
    const char *want; /* NULL: an error */
} by_rank[] = {
    {"a,b,c,d", 0, "a"}, {"a,b,c,d", 3, "d"}, {"a,b", 2, "a"}, {"a,b", 7, "b"}, {" a , b", 1, "b"},
    {"a", 5, "a"},       {"", 3, ""},         {"a,", 1, NULL}, {",", 0, NULL},  {"a,,b", 0, NULL},
};

START_TEST(nic_follows_the_rank_when_asked)
    {
        struct sl_nic_sources sources = {.list = by_rank[_i].list,
                                         .rank = by_rank[_i].rank,
                                         .by_rank = true,
                                         .visible_devices = "9,9,9,9,9,9,9,9",
                                         .registered_index = -1};
        char got[SL_NIC_NAME_BYTES] = "untouched";
        struct sl_error why = {0};

        sl_err err = sl_nic_choose(&sources, got, &why);

        ck_assert_int_eq(err, by_rank[_i].want != NULL ? SL_OK : SL_ERR_CONFIG);
        ck_assert_str_eq(got, by_rank[_i].want != NULL ? by_rank[_i].want : "untouched");
    }
END_TEST

/* ---- made-up machines ---- */

struct machine {
    struct fake_sysfs tree;
    struct sl_gpu gpus[SL_GPUS_MAX];
    struct sl_nics nics;
    struct sl_nic_plan plan;
    struct sl_error why;
    uint32_t gpu_count;
};

static struct machine *machine_make(void)
{
    struct machine *machine = calloc(1, sizeof(*machine));
    ck_assert_ptr_nonnull(machine);
    fake_sysfs_make(&machine->tree);
    return machine;
}

static void machine_look(struct machine *machine)
{
    machine->gpu_count = sl_gpus_list(machine->tree.gpus, machine->tree.root, machine->gpus);
    sl_nics_scan(machine->tree.root, &machine->nics);
}

static sl_err machine_plan(struct machine *machine, const char *list, const char *visible,
                           uint32_t rank_count)
{
    machine_look(machine);
    struct sl_nic_sources sources = {.list = list,
                                     .visible_devices = visible,
                                     .gpus = machine->gpus,
                                     .gpu_count = machine->gpu_count,
                                     .registered_index = -1};
    return sl_nic_plan_make(&sources, &machine->nics, rank_count, &machine->plan, &machine->why);
}

static const char *nic_of(const struct machine *machine, uint32_t rank)
{
    ck_assert_uint_lt(machine->plan.of_rank[rank], machine->plan.count);
    return machine->plan.names[machine->plan.of_rank[rank]];
}

static void machine_free(struct machine *machine)
{
    fake_sysfs_remove(&machine->tree);
    free(machine);
}

/* Like a DGX: two sockets with two host bridges each, each with a root port and a switch that has
 * two GPUs and two NICs. A further switch below the first leads to a NIC for storage. */
static void dgx_make(struct machine *machine)
{
    char pci[160], name[32], uuid[48], netdev[16];
    for (int i = 0; i < 8; i++) {
        int pair = i / 2, bus = 0x10 + pair * 0x20, node = pair / 2;
        char up[96];
        snprintf(up, sizeof(up), "pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", bus, bus, bus + 1);
        snprintf(pci, sizeof(pci), "%s/0000:%02x:%02x.0/0000:%02x:00.0", up, bus + 2, i % 2,
                 bus + 3 + i % 2);
        snprintf(uuid, sizeof(uuid), "GPU-%d", i);
        fake_sysfs_gpu(&machine->tree, pci, node, uuid);
        snprintf(pci, sizeof(pci), "%s/0000:%02x:%02x.0/0000:%02x:00.0", up, bus + 2, 4 + i % 2,
                 bus + 8 + i % 2);
        snprintf(name, sizeof(name), "mlx5_%d", i);
        snprintf(netdev, sizeof(netdev), "eth%d", i);
        fake_sysfs_nic(
            &machine->tree,
            &(struct fake_nic){.name = name, .pci = pci, .numa_node = node, .netdev = netdev});
    }
    fake_sysfs_nic(&machine->tree,
                   &(struct fake_nic){.name = "mlx5_8",
                                      .pci = "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:08.0/"
                                             "0000:1a:00.0/0000:1b:00.0/0000:1c:00.0",
                                      .netdev = "eth8"});
}

START_TEST(eight_gpus_behind_switches_have_a_nic_each)
    {
        struct machine *machine = machine_make();
        dgx_make(machine);

        sl_err err = machine_plan(machine, "auto", "0,1,2,3,4,5,6,7", 8);

        ck_assert_msg(err == SL_OK, "%s", machine->why.text);
        ck_assert_uint_eq(machine->gpu_count, 8);
        ck_assert_uint_eq(machine->nics.count, 9);
        ck_assert_uint_eq(machine->plan.count, 8);
        for (uint32_t rank = 0; rank < 8; rank++) {
            char want[16];
            snprintf(want, sizeof(want), "mlx5_%u", rank);
            ck_assert_str_eq(nic_of(machine, rank), want);
            ck_assert_int_eq(machine->plan.near_of_rank[rank], SL_NEAR_SWITCH);
        }
        machine_free(machine);
    }
END_TEST

/* Two ranks of one switch use different NICs, whichever GPUs the others have. */
START_TEST(ranks_of_one_switch_are_spread)
    {
        struct machine *machine = machine_make();
        dgx_make(machine);

        ck_assert_int_eq(machine_plan(machine, "auto-discovery", "GPU-5,GPU-4,1", 3), SL_OK);

        ck_assert_str_eq(nic_of(machine, 0), "mlx5_4");
        ck_assert_str_eq(nic_of(machine, 1), "mlx5_5");
        ck_assert_str_eq(nic_of(machine, 2), "mlx5_0");
        machine_free(machine);
    }
END_TEST

/* Each step further from a GPU, as nearer NICs lose their links. */
static const struct {
    const char *down; /* NICs whose links are down, by their last digits */
    const char *want;
    enum sl_near near;
} steps[] = {
    {"", "mlx5_0", SL_NEAR_SWITCH},      {"0", "mlx5_1", SL_NEAR_SWITCH},
    {"01", "mlx5_8", SL_NEAR_ROOT_PORT}, /* a switch more between */
    {"018", "mlx5_2", SL_NEAR_SOCKET},   {"0182", "mlx5_3", SL_NEAR_SOCKET},
    {"01823", "mlx5_4", SL_NEAR_ANY},
};

START_TEST(the_next_nearest_serves_when_links_are_down)
    {
        struct machine *machine = machine_make();
        dgx_make(machine);
        for (const char *digit = steps[_i].down; *digit != '\0'; digit++) {
            char name[64];
            snprintf(name, sizeof(name), "class/infiniband/mlx5_%c/ports/1/state", *digit);
            fake_sysfs_write(&machine->tree, name, "1: DOWN\n");
        }

        ck_assert_int_eq(machine_plan(machine, "auto", "0", 1), SL_OK);

        ck_assert_str_eq(nic_of(machine, 0), steps[_i].want);
        ck_assert_int_eq(machine->plan.near_of_rank[0], steps[_i].near);
        machine_free(machine);
    }
END_TEST

/* Two sockets, four GPUs at a root port each, one NIC a socket. */
static void two_sockets_make(struct machine *machine)
{
    char pci[96], uuid[16];
    for (int i = 0; i < 8; i++) {
        int bus = (i < 4 ? 0x10 : 0x80) + 4 * (i % 4);
        snprintf(pci, sizeof(pci), "pci0000:%02x/0000:%02x:02.0/0000:%02x:00.0", bus, bus, bus + 1);
        snprintf(uuid, sizeof(uuid), "GPU-%d", i);
        fake_sysfs_gpu(&machine->tree, pci, i / 4, uuid);
    }
    fake_sysfs_nic(
        &machine->tree,
        &(struct fake_nic){.name = "mlx5_0", .pci = "pci0000:10/0000:10:03.0/0000:12:00.0"});
    fake_sysfs_nic(&machine->tree,
                   &(struct fake_nic){.name = "mlx5_1",
                                      .numa_node = 1,
                                      .netdev = "eth1",
                                      .pci = "pci0000:a0/0000:a0:01.0/0000:a1:00.0"});
}

START_TEST(two_sockets_use_their_own_nic)
    {
        struct machine *machine = machine_make();
        two_sockets_make(machine);

        ck_assert_int_eq(machine_plan(machine, "auto", "0,1,2,3,4,5,6,7", 8), SL_OK);

        ck_assert_uint_eq(machine->plan.count, 2);
        for (uint32_t rank = 0; rank < 8; rank++) {
            ck_assert_str_eq(nic_of(machine, rank), rank < 4 ? "mlx5_0" : "mlx5_1");
        }
        ck_assert_int_eq(machine->plan.near_of_rank[0], SL_NEAR_BRIDGE);
        ck_assert_int_eq(machine->plan.near_of_rank[1], SL_NEAR_SOCKET);
        ck_assert_int_eq(machine->plan.near_of_rank[7], SL_NEAR_SOCKET);
        machine_free(machine);
    }
END_TEST

START_TEST(one_nic_serves_all)
    {
        struct machine *machine = machine_make();
        fake_sysfs_gpu(&machine->tree, "pci0000:00/0000:00:02.0/0000:01:00.0", -1, "GPU-0");
        fake_sysfs_gpu(&machine->tree, "pci0000:00/0000:00:03.0/0000:02:00.0", -1, "GPU-1");
        fake_sysfs_nic(&machine->tree, &(struct fake_nic){.name = "mlx5_0",
                                                          .numa_node = -1,
                                                          .pci = "pci0000:00/0000:00:05.0"});

        ck_assert_int_eq(machine_plan(machine, "auto", "0,1", 2), SL_OK);

        ck_assert_uint_eq(machine->plan.count, 1);
        ck_assert_str_eq(nic_of(machine, 0), "mlx5_0");
        ck_assert_str_eq(nic_of(machine, 1), "mlx5_0");
        ck_assert_int_eq(machine->plan.near_of_rank[1], SL_NEAR_BRIDGE);
        machine_free(machine);
    }
END_TEST

START_TEST(without_a_nic_auto_says_so)
    {
        struct machine *machine = machine_make();

        sl_err err = machine_plan(machine, "auto", NULL, 1);

        ck_assert_int_eq(err, SL_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(machine->why.text, "no rdma device") != NULL, "%s", machine->why.text);
        machine_free(machine);
    }
END_TEST

/* A port that is up but has no address is useless to a peer. */
static const struct fake_nic useless[] = {
    {.name = "mlx5_0", .pci = "pci0000:00/0000:00:05.0", .state = "1: DOWN\n"},
    {.name = "mlx5_0", .pci = "pci0000:00/0000:00:05.0", .state = "2: INIT\n"},
    {.name = "mlx5_0", .pci = "pci0000:00/0000:00:05.0", .state = "ACTIVE_DEFER\n"},
    {.name = "mlx5_0", .pci = "pci0000:00/0000:00:05.0", .gid_type = "IB/RoCE v1\n"},
    {.name = "mlx5_0",
     .pci = "pci0000:00/0000:00:05.0",
     .gid = "fe80:0000:0000:0000:0000:0000:0000:0001\n"},
    {.name = "mlx5_0",
     .pci = "pci0000:00/0000:00:05.0",
     .gid = "0000:0000:0000:0000:0000:0000:0000:0000\n"},
};

START_TEST(a_nic_of_no_use_is_named)
    {
        struct machine *machine = machine_make();
        fake_sysfs_nic(&machine->tree, &useless[_i]);

        sl_err err = machine_plan(machine, "auto", NULL, 1);

        ck_assert_int_eq(err, SL_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(machine->why.text, "mlx5_0: state") != NULL, "%s", machine->why.text);
        ck_assert_uint_eq(machine->plan.count, 0);
        machine_free(machine);
    }
END_TEST

/* Infiniband has a link-local GID and no network device. */
START_TEST(infiniband_needs_no_address)
    {
        struct machine *machine = machine_make();
        fake_sysfs_nic(&machine->tree,
                       &(struct fake_nic){.name = "mlx5_0",
                                          .pci = "pci0000:00/0000:00:05.0",
                                          .layer = "InfiniBand\n",
                                          .netdev = "",
                                          .gid = "fe80:0000:0000:0000:0000:0000:0000:0001\n",
                                          .gid_type = "IB/RoCE v1\n",
                                          .sent_words = 250,
                                          .received_words = 1000});

        ck_assert_int_eq(machine_plan(machine, "auto", NULL, 1), SL_OK);

        const struct sl_nic *nic = sl_nics_find(&machine->nics, "mlx5_0");
        ck_assert_ptr_nonnull(nic);
        ck_assert_str_eq(nic->layer, "InfiniBand");
        ck_assert_uint_eq(nic->rate_mbit_s, 200000);
        ck_assert(nic->counted);
        ck_assert_uint_eq(nic->sent_bytes, 1000);
        ck_assert_uint_eq(nic->received_bytes, 4000);
        machine_free(machine);
    }
END_TEST

#define PF "pci0000:00/0000:00:05.0/0000:05:00.0"
#define VF "pci0000:00/0000:00:05.0/0000:05:00."

static void functions_make(struct machine *machine, bool with_physical)
{
    fake_sysfs_pci(&machine->tree, PF, 0);
    if (with_physical) {
        fake_sysfs_nic(&machine->tree, &(struct fake_nic){.name = "mlx5_9", .pci = PF});
    }
    fake_sysfs_nic(&machine->tree,
                   &(struct fake_nic){.name = "mlx5_2", .pci = VF "2", .physfn = PF});
    fake_sysfs_nic(&machine->tree,
                   &(struct fake_nic){.name = "mlx5_3", .pci = VF "3", .physfn = PF});
}

/* Virtual functions add no bandwidth. In a container that has no other, one of them is used. */
START_TEST(virtual_functions_count_once)
    {
        struct machine *machine = machine_make();
        functions_make(machine, _i == 0);

        ck_assert_int_eq(machine_plan(machine, "auto", NULL, 4), SL_OK);

        ck_assert_uint_eq(machine->plan.count, 1);
        ck_assert_str_eq(nic_of(machine, 3), _i == 0 ? "mlx5_9" : "mlx5_2");
        ck_assert(sl_nics_find(&machine->nics, "mlx5_3")->virtual_function);
        machine_free(machine);
    }
END_TEST

START_TEST(a_virtual_function_serves_while_the_physical_one_is_down)
    {
        struct machine *machine = machine_make();
        functions_make(machine, true);
        fake_sysfs_write(&machine->tree, "class/infiniband/mlx5_9/ports/1/state", "1: DOWN\n");

        ck_assert_int_eq(machine_plan(machine, "auto", NULL, 1), SL_OK);

        ck_assert_str_eq(nic_of(machine, 0), "mlx5_2");
        machine_free(machine);
    }
END_TEST

START_TEST(ranks_without_a_gpu_are_spread_by_speed)
    {
        struct machine *machine = machine_make();
        fake_sysfs_nic(&machine->tree, &(struct fake_nic){.name = "slow",
                                                          .netdev = "eth1",
                                                          .pci = "pci0000:00/0000:00:05.0",
                                                          .rate = "100 Gb/sec (4X EDR)\n"});
        fake_sysfs_nic(&machine->tree, &(struct fake_nic){.name = "wide",
                                                          .netdev = "eth2",
                                                          .pci = "pci0000:00/0000:00:06.0",
                                                          .rate = "400 Gb/sec (4X NDR)\n"});
        static const char *const want[] = {"wide", "wide", "wide", "slow", "wide"};

        ck_assert_int_eq(machine_plan(machine, "auto", NULL, SL_COUNT(want)), SL_OK);

        for (uint32_t rank = 0; rank < SL_COUNT(want); rank++) {
            ck_assert_str_eq(nic_of(machine, rank), want[rank]);
            ck_assert_int_eq(machine->plan.near_of_rank[rank], SL_NEAR_ANY);
        }
        machine_free(machine);
    }
END_TEST

START_TEST(ports_of_one_device_are_named_apart)
    {
        struct machine *machine = machine_make();
        struct fake_nic nic = {
            .name = "mlx4_0", .pci = "pci0000:00/0000:00:05.0", .state = "1: DOWN\n"};
        fake_sysfs_nic(&machine->tree, &nic);
        nic.port = 2;
        nic.state = NULL;
        fake_sysfs_nic(&machine->tree, &nic);

        ck_assert_int_eq(machine_plan(machine, "auto", NULL, 2), SL_OK);

        ck_assert_uint_eq(machine->plan.count, 1);
        ck_assert_str_eq(nic_of(machine, 1), "mlx4_0:2");
        ck_assert_uint_eq(sl_nics_find(&machine->nics, "mlx4_0")->port, 2);
        ck_assert_uint_eq(sl_nics_find(&machine->nics, "mlx4_0:1")->port, 1);
        ck_assert_ptr_null(sl_nics_find(&machine->nics, "mlx4"));
        machine_free(machine);
    }
END_TEST

START_TEST(a_software_device_is_where_its_network_device_is)
    {
        struct machine *machine = machine_make();
        fake_sysfs_soft_nic(&machine->tree, "rxe0", "ens5", "pci0000:00/0000:00:05.0", 1);
        fake_sysfs_soft_nic(&machine->tree, "rxe1", "veth1", NULL, 0);

        machine_look(machine);

        ck_assert_uint_eq(machine->nics.count, 2);
        const struct sl_nic *near = &machine->nics.at[0], *nowhere = &machine->nics.at[1];
        ck_assert_str_eq(near->name, "rxe0");
        ck_assert_uint_eq(near->place.depth, 1);
        ck_assert_int_eq(near->place.numa_node, 1);
        ck_assert_uint_eq(near->rate_mbit_s, 2500);
        ck_assert_uint_eq(near->mtu_bytes, 9000);
        ck_assert(near->counted); /* by its network device */
        ck_assert_uint_eq(near->sent_bytes, 700);
        ck_assert_uint_eq(near->received_bytes, 900);
        ck_assert_uint_eq(nowhere->place.depth, 0);
        ck_assert(sl_nic_is_usable(nowhere));
        machine_free(machine);
    }
END_TEST

START_TEST(state_and_counters_are_read_anew)
    {
        struct machine *machine = machine_make();
        fake_sysfs_nic(&machine->tree, &(struct fake_nic){.name = "mlx5_0",
                                                          .sent_words = 1,
                                                          .pci = "pci0000:00/0000:00:05.0"});
        machine_look(machine);
        struct sl_nic *nic = &machine->nics.at[0];
        fake_sysfs_write(&machine->tree, "class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        fake_sysfs_write(&machine->tree, "class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
                         "1000\n");

        ck_assert(sl_nic_refresh(machine->tree.root, nic));

        ck_assert_str_eq(nic->state, "DOWN");
        ck_assert(!sl_nic_is_active(nic));
        ck_assert_uint_eq(nic->sent_bytes, 4000);
        ck_assert(!sl_nic_refresh("/nowhere", nic)); /* gone */
        machine_free(machine);
    }
END_TEST

/* ---- hostile trees ---- */

START_TEST(links_that_lead_nowhere_are_places_unknown)
    {
        struct machine *machine = machine_make();
        const struct fake_sysfs *tree = &machine->tree;
        fake_sysfs_nic(tree, &(struct fake_nic){.name = "good", .pci = "pci0000:00/0000:00:05.0"});
        fake_sysfs_link(tree, "class/infiniband/gone", "../../devices/nowhere");
        fake_sysfs_link(tree, "class/infiniband/loop", "loop");
        fake_sysfs_write(tree, "class/infiniband/lost/ports/1/state", "4: ACTIVE\n");
        fake_sysfs_link(tree, "class/infiniband/lost/device", "lost");
        fake_sysfs_write(tree, "class/infiniband/file", "no directory");
        fake_sysfs_link(tree, "bus/pci/devices/0000:01:00.0", "0000:01:00.0");
        fake_sysfs_gpu(tree, "pci0000:00/0000:00:07.0/0000:01:00.0", 0, "GPU-0");

        ck_assert_int_eq(machine_plan(machine, "auto", "0", 1), SL_OK);

        ck_assert_uint_eq(machine->nics.count, 2); /* good, lost: the others have no ports */
        ck_assert_uint_eq(sl_nics_find(&machine->nics, "lost")->place.depth, 0);
        ck_assert_uint_eq(machine->gpus[0].place.depth, 0);
        ck_assert_str_eq(nic_of(machine, 0), "good");
        machine_free(machine);
    }
END_TEST

START_TEST(hostile_contents_are_bounded)
    {
        struct machine *machine = machine_make();
        const struct fake_sysfs *tree = &machine->tree;
        static char much[1 << 20];
        char fifo[192];
        memset(much, 'A', sizeof(much) - 1);
        fake_sysfs_nic(tree, &(struct fake_nic){.name = "mlx5_0",
                                                .state = much,
                                                .rate = much,
                                                .layer = "\001\033[2J\n",
                                                .gid = much,
                                                .netdev = "../../../etc",
                                                .pci = "pci0000:00/0000:00:05.0"});
        fake_sysfs_nic(tree, &(struct fake_nic){.name = "mlx5_1",
                                                .netdev = "eth1",
                                                .rate = "nan Gb/sec\n",
                                                .pci = "pci0000:00/0000:00:06.0"});
        fake_sysfs_write(tree, "class/infiniband/mlx5_1/ports/1/counters/port_xmit_data",
                         "99999999999999999999999999\n");
        fake_sysfs_write(tree, "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "-5\n");
        fake_sysfs_write(tree, "class/infiniband/mlx5_1/device/numa_node", "999999999999\n");
        fake_sysfs_write(tree, "class/infiniband/mlx5_1/ports/0/state", "4: ACTIVE\n");
        fake_sysfs_write(tree, "class/infiniband/mlx5_1/ports/256/state", "4: ACTIVE\n");
        fake_sysfs_write(tree, "class/infiniband/a b;c/ports/1/state", "4: ACTIVE\n");
        snprintf(fifo, sizeof(fifo), "%s/class/infiniband/mlx5_2/ports/1/state", tree->root);
        fake_sysfs_write(tree, "class/infiniband/mlx5_2/ports/1/link_layer", "Ethernet\n");
        ck_assert_int_eq(mkfifo(fifo, 0600), 0); /* no writer: a read would never return */

        machine_look(machine);

        ck_assert_uint_eq(machine->nics.count, 3);
        ck_assert_uint_eq(machine->nics.skipped, 3);
        const struct sl_nic *nic = &machine->nics.at[0];
        ck_assert_uint_eq(strlen(nic->state), sizeof(nic->state) - 1);
        ck_assert_str_eq(nic->layer, "??[2J");
        ck_assert_str_eq(nic->netdev, "");
        ck_assert_uint_eq(nic->rate_mbit_s, 0);
        nic = &machine->nics.at[1];
        ck_assert_uint_eq(nic->rate_mbit_s, 0);
        ck_assert_int_eq(nic->place.numa_node, -1);
        ck_assert(!nic->counted);
        ck_assert_str_eq(nic->name, "mlx5_1:1");
        ck_assert_str_eq(machine->nics.at[2].state, "");
        machine_free(machine);
    }
END_TEST

START_TEST(more_ports_than_there_is_room_for_are_skipped)
    {
        struct machine *machine = machine_make();
        for (uint32_t i = 0; i < SL_NICS_MAX + 5; i++) {
            char name[80];
            snprintf(name, sizeof(name), "class/infiniband/mlx5_%u/ports/1/state", i);
            fake_sysfs_write(&machine->tree, name, "4: ACTIVE\n");
        }

        machine_look(machine);

        ck_assert_uint_eq(machine->nics.count, SL_NICS_MAX);
        ck_assert_uint_eq(machine->nics.skipped, 5);
        ck_assert_str_eq(machine->nics.at[2].name, "mlx5_2"); /* as people count */
        ck_assert_str_eq(machine->nics.at[SL_NICS_MAX - 1].name, "mlx5_63");
        machine_free(machine);
    }
END_TEST

/* A path with more bridges than the limit still identifies one place. */
START_TEST(paths_are_places)
    {
        struct machine *machine = machine_make();
        char pci[1024] = "pci0000:00", path[1200];
        struct sl_pci_place place;
        for (int i = 0; i < 40; i++) {
            snprintf(pci + strlen(pci), sizeof(pci) - strlen(pci), "/0000:%02x:00.0", i);
        }
        fake_sysfs_pci(&machine->tree, pci, 3);
        snprintf(path, sizeof(path), "%s/devices/%s", machine->tree.root, pci);

        sl_pci_place_read(path, &place);

        ck_assert_uint_eq(place.depth, SL_PCI_DEPTH_MAX);
        ck_assert_int_eq(place.numa_node, 3);
        ck_assert_int_eq(sl_pci_near(&place, &place, NULL), SL_NEAR_SWITCH);
        sl_pci_place_read("/nowhere", &place);
        ck_assert_uint_eq(place.depth, 0);
        ck_assert_int_eq(place.numa_node, -1);
        ck_assert_int_eq(sl_pci_near(&place, &place, NULL), SL_NEAR_ANY);
        machine_free(machine);
    }
END_TEST

START_TEST(a_controller_with_a_bus_of_its_own_begins_the_path)
    {
        struct machine *machine = machine_make();
        static const char inner[] =
            "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0";
        char path[256];
        struct sl_pci_place place;
        fake_sysfs_pci(&machine->tree, inner, 0);
        snprintf(path, sizeof(path), "%s/devices/%s", machine->tree.root, inner);

        sl_pci_place_read(path, &place);

        ck_assert_str_eq(place.bridge, "pci10000:e0");
        ck_assert_uint_eq(place.depth, 2);
        machine_free(machine);
    }
END_TEST

/* ---- plans of lists ---- */

START_TEST(a_list_needs_no_device)
    {
        struct machine *machine = machine_make();

        ck_assert_int_eq(machine_plan(machine, "b,a,b,c", "0,1,2,3", 4), SL_OK);

        ck_assert_uint_eq(machine->plan.count, 3);
        ck_assert_str_eq(machine->plan.names[0], "b");
        ck_assert_str_eq(nic_of(machine, 1), "a");
        ck_assert_str_eq(nic_of(machine, 2), "b");
        ck_assert_str_eq(nic_of(machine, 3), "c");
        ck_assert_int_eq(machine_plan(machine, "", NULL, 4), SL_OK);
        ck_assert_uint_eq(machine->plan.count, 1);
        ck_assert_str_eq(machine->plan.names[0], "");
        machine_free(machine);
    }
END_TEST

static const struct {
    const char *list, *visible;
    uint32_t rank_count;
    sl_err want;
} bad_plans[] = {
    {"a,b", "0,1,2", 3, SL_ERR_CONFIG}, /* too short for the third */
    {"a,b", NULL, 2, SL_ERR_CONFIG},    {"a,,b", "0,1", 2, SL_ERR_CONFIG},
    {"a", "0", 0, SL_ERR_INVALID},      {"a", "0", SL_NIC_RANKS_MAX + 1, SL_ERR_INVALID},
};

START_TEST(a_bad_plan_changes_nothing)
    {
        struct machine *machine = machine_make();
        machine->plan.count = 77;

        sl_err err = machine_plan(machine, bad_plans[_i].list, bad_plans[_i].visible,
                                  bad_plans[_i].rank_count);

        ck_assert_int_eq(err, bad_plans[_i].want);
        ck_assert_uint_eq(machine->plan.count, 77);
        machine_free(machine);
    }
END_TEST

START_TEST(gpus_are_listed_in_the_order_of_their_addresses)
    {
        struct machine *machine = machine_make();
        fake_sysfs_gpu(&machine->tree, "pci0000:40/0000:40:01.0/0000:41:00.0", 1, "GPU-0");
        fake_sysfs_gpu(&machine->tree, "pci0000:00/0000:00:01.0/0000:01:00.0", 0, "GPU-1");

        machine_look(machine);

        ck_assert_uint_eq(machine->gpu_count, 2);
        ck_assert_str_eq(machine->gpus[0].uuid, "GPU-1");
        ck_assert_uint_eq(machine->gpus[0].index, 0);
        ck_assert_str_eq(machine->gpus[1].uuid, "GPU-0");
        ck_assert_uint_eq(machine->gpus[1].index, 1);
        ck_assert_int_eq(machine->gpus[1].place.numa_node, 1);
        static struct sl_gpu bare[SL_GPUS_MAX];
        ck_assert_uint_eq(sl_gpus_list(machine->tree.gpus, NULL, bare), 2);
        ck_assert_uint_eq(bare[1].place.depth, 0);
        ck_assert_uint_eq(sl_gpus_list("/nowhere", machine->tree.root, bare), 0);
        machine_free(machine);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("nics");
    TCase *cases = tcase_create("choice");
    tcase_add_loop_test(cases, nic_follows_the_physical_gpu, 0, SL_COUNT(lists));
    tcase_add_loop_test(cases, nic_follows_the_rank_when_asked, 0, SL_COUNT(by_rank));
    tcase_add_test(cases, eight_gpus_behind_switches_have_a_nic_each);
    tcase_add_test(cases, ranks_of_one_switch_are_spread);
    tcase_add_loop_test(cases, the_next_nearest_serves_when_links_are_down, 0, SL_COUNT(steps));
    tcase_add_test(cases, two_sockets_use_their_own_nic);
    tcase_add_test(cases, one_nic_serves_all);
    tcase_add_test(cases, without_a_nic_auto_says_so);
    tcase_add_loop_test(cases, a_nic_of_no_use_is_named, 0, SL_COUNT(useless));
    tcase_add_test(cases, infiniband_needs_no_address);
    tcase_add_loop_test(cases, virtual_functions_count_once, 0, 2);
    tcase_add_test(cases, a_virtual_function_serves_while_the_physical_one_is_down);
    tcase_add_test(cases, ranks_without_a_gpu_are_spread_by_speed);
    tcase_add_test(cases, ports_of_one_device_are_named_apart);
    tcase_add_test(cases, a_software_device_is_where_its_network_device_is);
    tcase_add_test(cases, state_and_counters_are_read_anew);
    tcase_add_test(cases, links_that_lead_nowhere_are_places_unknown);
    tcase_add_test(cases, hostile_contents_are_bounded);
    tcase_add_test(cases, more_ports_than_there_is_room_for_are_skipped);
    tcase_add_test(cases, paths_are_places);
    tcase_add_test(cases, a_controller_with_a_bus_of_its_own_begins_the_path);
    tcase_add_test(cases, a_list_needs_no_device);
    tcase_add_loop_test(cases, a_bad_plan_changes_nothing, 0, SL_COUNT(bad_plans));
    tcase_add_test(cases, gpus_are_listed_in_the_order_of_their_addresses);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
