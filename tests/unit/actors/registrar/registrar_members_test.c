/* tests/unit/actors/registrar/registrar_members_test.c - which disk may be served, and which begins
 * empty, according to the lists of members that they keep. The test plays the tierers and their
 * disks. */
#include "tests/unit/actors/registrar/registrar_support.h"

#define LIST_MAX 8u

struct member {
    char name[16];
    uint64_t epoch;
};
_Static_assert(sizeof(struct member) == 24, "as in messages");

/* A disk: the contents of its file of members, and whether it holds values. */
struct disk {
    char name[17];
    uint64_t epoch; /* 0: no list */
    struct member list[LIST_MAX];
    uint32_t count;
    bool blank;
};

static const char *const settings[] = {"disk",     "1GiB", "disk_path", "/one,/two",
                                       "io_grace", "10s",  NULL};

static struct member member_of(const char *name, uint64_t epoch)
{
    struct member member = {.epoch = epoch};
    memcpy(member.name, name, SL_MIN(strlen(name), sizeof(member.name)));
    return member;
}

/* Makes a disk; the names in its list have one letter each. */
static struct disk disk_of(const char *name, uint64_t epoch, const char *list)
{
    struct disk disk = {.epoch = epoch};
    (void)snprintf(disk.name, sizeof(disk.name), "%s", name);
    for (; *list != '\0'; list++) {
        const char letter[2] = {*list, '\0'};
        disk.list[disk.count++] = member_of(letter, 7);
    }
    return disk;
}

static const char *tierer_of(uint32_t path)
{
    return path == 0 ? "tierer.0" : "tierer.1";
}

static void tierer_come(struct node *node, uint32_t path, uint32_t pid)
{
    struct sl_msg fence, ok = {.code = SL_OK};
    tierer_select(path, "");
    tierer_arrive(node, pid);
    ck_assert(fake_take(&node->fake, tierer_of(path), SL_MSG_FENCE, &fence));
    fake_answer(&node->fake, tierer_of(path), &fence, &ok);
}

/* Sends the beginning and end of a scan; returns the code of the answer. */
static sl_err disk_tell(struct node *node, uint32_t path, const struct disk *disk)
{
    struct sl_msg reply, found = {.type = SL_MSG_DISK_FOUND};
    struct member told[1 + LIST_MAX] = {member_of(disk->name, disk->epoch)};
    char name[17] = "";
    memcpy(&told[1], disk->list, sizeof(disk->list));
    (void)snprintf(name, sizeof(name), "%s", disk->name);
    found.body.disk_found.first = true;
    found.body.disk_found.last = true;
    found.body.disk_found.blank = disk->blank;
    found.body.disk_found.store = (struct sl_bytes){name, 16};
    found.body.disk_found.members =
        (struct sl_bytes){(const void *)told, (1 + disk->count) * sizeof(told[0])};
    fake_give(&node->fake, tierer_of(path), &found);
    ck_assert(fake_take_reply(&node->fake, tierer_of(path), found.seq, &reply));
    return reply.code;
}

/* Takes the DISK_MEMBERS for that disk; false: none was sent. */
static bool members_take(struct node *node, uint32_t path, struct sl_msg *out)
{
    return fake_take(&node->fake, tierer_of(path), SL_MSG_DISK_MEMBERS, out);
}

/* Writes the list to the disk. */
static void members_land(struct disk *disk, const struct sl_msg *msg)
{
    const struct sl_body_disk_members *body = &msg->body.disk_members;
    ck_assert_uint_le(body->members.length, sizeof(disk->list));
    disk->epoch = body->epoch;
    disk->count = (uint32_t)(body->members.length / sizeof(disk->list[0]));
    memset(disk->list, 0, sizeof(disk->list));
    memcpy(disk->list, body->members.at, body->members.length);
    if (body->empty) {
        disk->name[0] = (char)(disk->name[0] + 'a' - 'A');
        disk->blank = true;
    }
}

static void members_answer(struct node *node, uint32_t path, const struct sl_msg *msg, sl_err code)
{
    struct sl_msg reply = {.code = code};
    fake_answer(&node->fake, tierer_of(path), msg, &reply);
}

static bool lists(const struct disk *disk, const char *name)
{
    struct member wanted = member_of(name, 0);
    for (uint32_t i = 0; i < disk->count; i++) {
        if (memcmp(disk->list[i].name, wanted.name, sizeof(wanted.name)) == 0) {
            return true;
        }
    }
    return false;
}

/* Repeats both reports until the answers are final; returns a bit for each disk to empty. */
static uint32_t judge(struct node *node, const struct disk disks[2])
{
    uint32_t emptied = 0;
    (void)disk_tell(node, 0, &disks[0]);
    for (uint32_t path = 2; path-- > 0;) {
        struct sl_msg msg;
        if (disk_tell(node, path, &disks[path]) != SL_OK) {
            ck_assert_msg(members_take(node, path, &msg), "disk %s waits for nothing",
                          disks[path].name);
            ck_assert(msg.body.disk_members.empty);
            emptied |= 1u << path;
        }
    }
    return emptied;
}

static const struct {
    const char *what;
    uint64_t epochs[2];
    const char *lists[2];
    bool blank[2];
    uint32_t emptied;
} starts[] = {
    {"two of before there were lists", {0, 0}, {"", ""}, {false, false}, 0},
    {"two that served together", {7, 7}, {"B", "A"}, {false, false}, 0},
    {"B does not know of A", {7, 9}, {"B", ""}, {false, false}, 1},
    {"A does not know of B", {9, 7}, {"", "A"}, {false, false}, 2},
    {"each served by itself", {7, 7}, {"", ""}, {false, false}, 3},
    {"each served with a third one", {7, 7}, {"C", "C"}, {false, false}, 3},
    {"A is new", {0, 7}, {"", ""}, {true, false}, 0},
    {"A has a list and no values", {7, 7}, {"", "C"}, {true, false}, 2},
    {"B joined while A was missing and idle", {7, 8}, {"", "A"}, {false, false}, 0},
    {"B joined while A was missing, then A worked", {9, 8}, {"", "A"}, {false, false}, 2},
    {"the list of A was lost", {0, 7}, {"", "A"}, {false, false}, 0},
    {"the list of A was lost while it was missing", {0, 7}, {"", ""}, {false, false}, 1},
};

START_TEST(lists_decide_who_begins_empty)
    {
        struct disk disks[2];
        struct node *node = node_start(settings);
        for (uint32_t i = 0; i < 2; i++) {
            disks[i] = disk_of(i == 0 ? "A" : "B", starts[_i].epochs[i], starts[_i].lists[i]);
            disks[i].blank = starts[_i].blank[i];
            tierer_come(node, i, TIERER_PID + i);
        }

        uint32_t emptied = judge(node, disks);

        ck_assert_msg(emptied == starts[_i].emptied, "%s: %x began empty", starts[_i].what,
                      emptied);
        node_end(node);
    }
END_TEST

/* A node of two blank disks. */
static struct node *node_of_two(struct disk disks[2])
{
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    for (uint32_t i = 0; i < 2; i++) {
        disks[i] = disk_of(i == 0 ? "A" : "B", 0, "");
        disks[i].blank = true;
        tierer_come(node, i, TIERER_PID + i);
    }
    ck_assert_int_eq(disk_tell(node, 0, &disks[0]), SL_ERR_BUSY);
    for (uint32_t i = 2; i-- > 0;) {
        ck_assert_int_eq(disk_tell(node, i, &disks[i]), SL_OK);
    }
    return node;
}

static uint32_t writes_of_both(struct node *node)
{
    struct sl_msg msg;
    uint32_t count = 0;
    for (uint32_t path = 0; path < 2; path++) {
        while (fake_take(&node->fake, tierer_of(path), SL_MSG_DISK_WRITE, &msg)) {
            count++;
        }
    }
    return count;
}

/* Cuts: the first bit says whether A's list was written, the second whether B's was. No value was
 * written before both were, so none of the four cases may lose a value or leave a disk unknown. */
START_TEST(power_cut_between_two_lists_costs_nothing)
    {
        struct disk disks[2];
        struct sl_msg msg;
        struct node *node = node_of_two(disks);
        node_put(node, "client.1", "k", 4096);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_uint_eq(writes_of_both(node), 0);
            ck_assert(members_take(node, i, &msg));
            ck_assert(!msg.body.disk_members.empty);
            if ((_i >> i & 1) != 0) {
                members_land(&disks[i], &msg);
                members_answer(node, i, &msg, SL_OK);
            }
        }
        ck_assert_uint_eq(writes_of_both(node), _i == 3);
        disks[0].blank = false; /* as if both had earlier values */
        disks[1].blank = false;
        node_end(node);
        node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_uint_eq(judge(node, disks), 0);
        node_end(node);
    }
END_TEST

/* Makes the lists of both durable. */
static void both_agree(struct node *node, struct disk disks[2])
{
    struct sl_msg msg;
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert(members_take(node, i, &msg));
        members_land(&disks[i], &msg);
        members_answer(node, i, &msg, SL_OK);
    }
}

START_TEST(removal_is_answered_when_the_disk_that_left_is_out_of_the_list)
    {
        struct disk disks[2];
        struct sl_msg msg, reply, removal = {.type = SL_MSG_REMOVE, .budget_ns = 5 * SL_NS_PER_S};
        struct sl_text key = sl_text_of("k");
        struct node *node = node_of_two(disks);
        node_put(node, "client.1", "first", 4096);
        both_agree(node, disks);
        ck_assert(lists(&disks[1], "A"));
        disks[1].blank = false;
        for (uint32_t i = 0; i < 2; i++) {
            fake_process_end(&node->fake, proc_of(TIERER_PID + i));
        }
        fake_set(&node->fake, "disk_path", "/two");
        node_restart(node);
        node_client(node, "client.1", 11);
        tierer_come(node, 0, TIERER_PID + 5);
        ck_assert_int_eq(disk_tell(node, 0, &disks[1]), SL_OK);
        ck_assert(!members_take(node, 0, &msg)); /* nothing has changed yet */
        removal.body.remove.keys = (struct sl_texts){&key, 1};

        fake_give(&node->fake, "client.1", &removal);

        ck_assert(!fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        ck_assert(members_take(node, 0, &msg));
        members_land(&disks[1], &msg);
        ck_assert(!lists(&disks[1], "A"));
        members_answer(node, 0, &msg, SL_OK);
        ck_assert(fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_ERR_NOT_FOUND);

        disks[0].blank = false; /* and the other one is void in any case */
        node_end(node);
        node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);
        ck_assert_uint_eq(judge(node, disks), 1);
        node_end(node);
    }
END_TEST

START_TEST(removal_without_the_list_on_disk_is_in_doubt)
    {
        struct disk disks[2];
        struct sl_msg reply, removal = {.type = SL_MSG_REMOVE, .budget_ns = SL_NS_PER_S};
        struct sl_text key = sl_text_of("k");
        struct node *node = node_of_two(disks);
        removal.body.remove.keys = (struct sl_texts){&key, 1};

        fake_give(&node->fake, "client.1", &removal);
        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert(fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_ERR_TIMEOUT);
        node_end(node);
    }
END_TEST

START_TEST(late_witness_is_heard)
    {
        struct disk a = disk_of("A", 7, "B"), b = disk_of("B", 9, "");
        struct sl_msg msg;
        struct node *node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        ck_assert_int_eq(disk_tell(node, 0, &a), SL_ERR_BUSY);
        fake_advance(&node->fake, 21 * SL_NS_PER_S); /* B may be dead */
        ck_assert_int_eq(disk_tell(node, 0, &a), SL_OK);
        ck_assert(!members_take(node, 0, &msg));
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_int_eq(disk_tell(node, 1, &b), SL_OK);

        ck_assert(members_take(node, 0, &msg));
        ck_assert(msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

/* A node whose only disk is alone for so long that it is served; a value is put. */
static struct node *node_of_one(struct disk *disk)
{
    struct sl_msg msg;
    struct node *node = node_start(settings);
    node_client(node, "client.1", 11);
    tierer_come(node, 0, TIERER_PID);
    ck_assert_int_eq(disk_tell(node, 0, disk), SL_ERR_BUSY);
    fake_advance(&node->fake, 21 * SL_NS_PER_S);
    ck_assert_int_eq(disk_tell(node, 0, disk), SL_OK);
    node_put(node, "client.1", "k", 4096);
    ck_assert(members_take(node, 0, &msg));
    members_land(disk, &msg);
    members_answer(node, 0, &msg, SL_OK);
    return node;
}

/* B joined while A was idle, so A's list does not contain it. The index knows what A has missed
 * since. Runs twice, with a restart of the registrar in between. */
START_TEST(disk_that_came_first_does_not_void_the_one_that_knows_of_it)
    {
        struct disk a = disk_of("A", 7, ""), b = disk_of("B", 9, "A");
        struct sl_msg msg;
        struct node *node = node_of_one(&a);
        if (_i == 1) {
            node_restart(node);
            node_client(node, "client.1", 11);
            tierer_come(node, 0, TIERER_PID);
            ck_assert_int_eq(disk_tell(node, 0, &a), SL_OK);
        }
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_int_eq(disk_tell(node, 1, &b), SL_OK);

        ck_assert(!members_take(node, 1, &msg) || !msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

/* When both paths have reported, no other disk is waited for, and B, which knows both, has missed
 * changes. Runs twice, with a restart of the registrar in between. */
START_TEST(disk_that_comes_when_all_have_told_has_missed_something)
    {
        struct disk a = disk_of("A", 7, "C"), b = disk_of("B", 9, "AC"), c = disk_of("C", 7, "A");
        struct sl_msg msg;
        struct node *node = node_of_one(&a);
        tierer_come(node, 1, TIERER_PID + 1);
        ck_assert_int_eq(disk_tell(node, 1, &c), SL_OK);
        for (uint32_t i = 0; i < 2; i++) {
            if (members_take(node, i, &msg)) {
                members_land(i == 0 ? &a : &c, &msg);
                members_answer(node, i, &msg, SL_OK);
            }
        }
        fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
        if (_i == 1) {
            node_restart(node);
            node_client(node, "client.1", 11);
            tierer_come(node, 0, TIERER_PID);
            ck_assert_int_eq(disk_tell(node, 0, &a), SL_OK);
        }
        tierer_come(node, 1, TIERER_PID + 2);

        ck_assert_int_eq(disk_tell(node, 1, &b), SL_ERR_BUSY);

        fake_advance(&node->fake, 21 * SL_NS_PER_S);
        ck_assert_int_eq(disk_tell(node, 1, &b), SL_ERR_BUSY);
        ck_assert(members_take(node, 1, &msg));
        ck_assert(msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

/* C has left and is removed from the lists. B's restarted tierer has not reported its disk. */
START_TEST(disk_whose_tierer_is_about_to_tell_is_not_struck_with_one_that_left)
    {
        struct disk a = disk_of("A", 7, "BC"), b = disk_of("B", 7, "AC");
        const struct disk both[2] = {a, b};
        struct sl_msg msg;
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);
        ck_assert_uint_eq(judge(node, both), 0);
        fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
        tierer_come(node, 1, TIERER_PID + 2);

        node_put(node, "client.1", "k", 4096);

        ck_assert(members_take(node, 0, &msg));
        members_land(&a, &msg);
        ck_assert(lists(&a, "B") && !lists(&a, "C"));
        members_answer(node, 0, &msg, SL_OK);
        ck_assert_int_eq(disk_tell(node, 1, &b), SL_OK);
        node_end(node);
    }
END_TEST

static void remove_all(struct node *node, struct sl_msg *removal)
{
    *removal = (struct sl_msg){.type = SL_MSG_REMOVE, .budget_ns = 5 * SL_NS_PER_S};
    removal->body.remove.all = true;
    fake_give(&node->fake, "client.1", removal);
}

/* The contents of such a disk are unknown, so there can be no tombstones. Runs twice, with a
 * restart of the registrar in between. */
START_TEST(disk_that_was_away_when_all_was_removed_begins_empty)
    {
        struct disk a = disk_of("A", 7, "B"), b = disk_of("B", 7, "A");
        struct sl_msg msg, reply, removal;
        struct node *node = node_of_one(&a);
        ck_assert(lists(&a, "B"));
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        remove_all(node, &removal);
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        fake_advance(&node->fake, 200 * SL_NS_PER_MS);

        ck_assert(members_take(node, 0, &msg));
        ck_assert(!fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        members_land(&a, &msg);
        ck_assert(!lists(&a, "B"));
        members_answer(node, 0, &msg, SL_OK);
        fake_advance(&node->fake, 200 * SL_NS_PER_MS);
        ck_assert(fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_DISK_AWAY);
        if (_i == 1) {
            node_restart(node);
            node_client(node, "client.1", 11);
            tierer_come(node, 0, TIERER_PID);
            ck_assert_int_eq(disk_tell(node, 0, &a), SL_OK);
        }
        tierer_come(node, 1, TIERER_PID + 1);
        ck_assert_int_eq(disk_tell(node, 1, &b), SL_ERR_BUSY);
        ck_assert(members_take(node, 1, &msg));
        ck_assert(msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

/* No other disk can report it either: the index does. */
START_TEST(disk_that_was_alone_and_away_when_all_was_removed_begins_empty)
    {
        static const char *const alone[] = {"disk", "1GiB", "disk_path", "/one", NULL};
        struct disk a = disk_of("A", 7, "");
        struct sl_msg msg, reply, removal;
        struct node *node = node_start(alone);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 4096);
        fake_advance(&node->fake, 6 * SL_NS_PER_S);

        remove_all(node, &removal);

        ck_assert(fake_take_reply(&node->fake, "client.1", removal.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_DISK_AWAY);
        if (_i == 1) {
            node_restart(node);
        }
        tierer_come(node, 0, TIERER_PID);
        ck_assert_int_eq(disk_tell(node, 0, &a), SL_ERR_BUSY);
        ck_assert(members_take(node, 0, &msg));
        ck_assert(msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

static bool has(struct node *node, const char *key, bool only_on_disk)
{
    struct sl_entry entry;
    return node_entry(node, key, &entry) && (entry.extent.generation == 0) == only_on_disk;
}

/* A node without disks does not note which keys it removes. 0: it had a disk before; 1: it is
 * new. */
START_TEST(disk_that_was_away_while_the_node_had_none_begins_empty)
    {
        static const char *const none[] = {NULL};
        struct disk a = disk_of("A", 7, "");
        struct sl_msg msg;
        struct node *node = _i == 0 ? node_of_one(&a) : node_start(none);
        if (_i == 0) {
            node_put_block(node, "client.1", "m/b", 2, 4096, 0);
            (void)tierer_write(node, 1, SL_OK);
            for (uint32_t i = 0; i < 4; i++) {
                const char key[] = {(char)('0' + i), '\0'};
                node_put(node, "client.1", key, SL_MIB);
                ck_assert_uint_eq(tierer_write(node, 2 + i, SL_OK), 1);
            }
            ck_assert(has(node, "k", true) && has(node, "m/b/0", true) && has(node, "3", false));
            fake_process_end(&node->fake, proc_of(TIERER_PID));
            fake_set(&node->fake, "disk", "0");
            node_restart(node);
        }
        node_client(node, "client.1", 11);
        ck_assert(!has(node, "k", true) && !has(node, "k", false)); /* so it can be put */
        node_put(node, "client.1", "k", SL_MIB);
        node_put_block(node, "client.1", "m/b", 2, 4096, 0);
        ck_assert_int_eq(node_remove(node, "client.1", "k"), SL_OK);
        for (uint32_t i = 0; i < 8; i++) { /* nothing leaves memory for a disk */
            const char key[] = {(char)('a' + i), '\0'};
            node_put(node, "client.1", key, SL_MIB);
            ck_assert(!has(node, "3", true));
        }
        node_restart(node);
        fake_set(&node->fake, "disk", "1GiB");
        node_restart(node);
        tierer_come(node, 0, TIERER_PID + 1);
        fake_advance(&node->fake, 21 * SL_NS_PER_S);

        ck_assert_int_eq(disk_tell(node, 0, &a), SL_ERR_BUSY);

        ck_assert(members_take(node, 0, &msg) && msg.body.disk_members.empty);
        node_end(node);
    }
END_TEST

/* B joined while A was idle. The power is cut between the next two lists: the first bit says
 * whether A's was written, the second whether B's was, if it was sent. */
START_TEST(power_cut_between_the_lists_of_a_disk_and_one_that_came_later_costs_nothing)
    {
        struct disk disks[2] = {disk_of("A", 7, ""), disk_of("B", 9, "A")};
        struct sl_msg msg;
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);
        ck_assert_uint_eq(judge(node, disks), 0);
        node_put(node, "client.1", "k", 4096);
        for (uint32_t i = 0; i < 2; i++) {
            if ((_i >> i & 1) != 0 && members_take(node, i, &msg)) {
                members_land(&disks[i], &msg);
                members_answer(node, i, &msg, SL_OK);
            }
        }
        ck_assert_uint_eq(writes_of_both(node), _i == 3);
        node_end(node);
        node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_uint_eq(judge(node, disks), 0);
        node_end(node);
    }
END_TEST

/* A disk that accepts its list and no values is not waited for: that is reported, and values are
 * evicted without it. */
START_TEST(a_list_that_is_there_does_not_make_a_failing_disk_well)
    {
        struct disk disks[2], fresh = disk_of("C", 0, "");
        struct sl_metrics_view *view = NULL;
        struct sl_metrics_summary summary;
        struct sl_msg msg, reply = {.code = SL_OK};
        char path[4096];
        struct node *node = node_of_two(disks);
        node_put(node, "client.1", "k", 4096);
        both_agree(node, disks);
        fake_process_end(&node->fake, proc_of(TIERER_PID));
        fake_process_end(&node->fake, proc_of(TIERER_PID + 1));
        node_restart(node);
        node_client(node, "client.1", 11);
        tierer_come(node, 0, TIERER_PID + 5);
        ck_assert_int_eq(disk_tell(node, 0, &disks[1]), SL_OK);
        ck_assert(fake_take(&node->fake, tierer_of(0), SL_MSG_DISK_WRITE, &msg));
        struct sl_item_spilled refused = {.code = SL_ERR_NO_SPACE,
                                          .generation = msg.body.disk_write.items.at[0].generation};
        reply.body.disk_write_reply.items.at = &refused;
        reply.body.disk_write_reply.items.count = 1;
        fake_answer(&node->fake, tierer_of(0), &msg, &reply);

        fresh.blank = true;
        tierer_come(node, 1, TIERER_PID + 6); /* the list has changed */
        ck_assert_int_eq(disk_tell(node, 1, &fresh), SL_OK);
        node_put(node, "client.1", "n", 4096);
        ck_assert(members_take(node, 0, &msg));
        members_answer(node, 0, &msg, SL_OK);
        fake_advance(&node->fake, SL_NS_PER_MS);

        (void)snprintf(path, sizeof(path), "%s/metrics.fake", node->fake.paths.shm_dir);
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        sl_metrics_view_summary(view, &summary);
        sl_metrics_view_close(&view);
        ck_assert_ptr_nonnull(strstr(summary.reason, "full or failing"));
        node_end(node);
    }
END_TEST

/* A list whose write failed may still be on the disk. Runs twice, with a restart in between. */
START_TEST(list_that_failed_and_is_there_voids_nobody)
    {
        struct disk disks[2], d = disk_of("D", 0, "");
        struct sl_msg msg;
        struct node *node = node_of_two(disks);
        d.blank = true;
        node_put(node, "client.1", "k", 4096);
        ck_assert(members_take(node, 1, &msg));
        members_land(&disks[1], &msg);
        members_answer(node, 1, &msg, SL_ERR_IO);
        struct disk told = disks[1];
        told.epoch = 0; /* its tierer does not know */
        told.count = 0;
        fake_process_end(&node->fake, proc_of(TIERER_PID)); /* before its list was written */
        if (_i == 1) {
            node_restart(node);
            node_client(node, "client.1", 11);
            tierer_come(node, 1, TIERER_PID + 1);
            (void)disk_tell(node, 1, &told);
        }
        tierer_come(node, 0, TIERER_PID + 5);
        ck_assert_int_eq(disk_tell(node, 0, &d), SL_OK);
        if (_i == 1 && members_take(node, 1, &msg)) {
            members_answer(node, 1, &msg, SL_ERR_IO);
        }
        while (members_take(node, 0, &msg)) {
            members_land(&d, &msg);
            members_answer(node, 0, &msg, SL_OK);
        }
        ck_assert(fake_take(&node->fake, tierer_of(0), SL_MSG_DISK_WRITE, &msg));
        d.blank = false;
        node_end(node);
        disks[0] = d;
        node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_uint_eq(judge(node, disks), 0);
        node_end(node);
    }
END_TEST

START_TEST(disk_that_joins_is_in_the_list_of_the_others)
    {
        struct disk a = disk_of("A", 0, ""), b = disk_of("B", 0, "");
        struct sl_msg msg;
        a.blank = b.blank = true;
        struct node *node = node_of_one(&a);
        tierer_come(node, 1, TIERER_PID + 1);

        ck_assert_int_eq(disk_tell(node, 1, &b), SL_OK);

        ck_assert(members_take(node, 0, &msg));
        members_land(&a, &msg);
        ck_assert(lists(&a, "B"));
        node_end(node);
    }
END_TEST

START_TEST(disk_that_cannot_keep_its_list_costs_the_others_nothing)
    {
        struct disk disks[2];
        struct sl_msg msg;
        struct node *node = node_of_two(disks);
        for (uint32_t i = 0; i < 8; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 4096);
        }
        ck_assert(members_take(node, 0, &msg));
        members_answer(node, 0, &msg, SL_ERR_IO);
        ck_assert(members_take(node, 1, &msg));
        members_land(&disks[1], &msg);
        members_answer(node, 1, &msg, SL_OK);
        /* It believed that A has the list as well, and gets a new one. */
        ck_assert(members_take(node, 1, &msg));
        members_land(&disks[1], &msg);
        members_answer(node, 1, &msg, SL_OK);

        ck_assert(!fake_take(&node->fake, tierer_of(0), SL_MSG_DISK_WRITE, &msg));
        ck_assert(fake_take(&node->fake, tierer_of(1), SL_MSG_DISK_WRITE, &msg));
        node_end(node);
    }
END_TEST

START_TEST(lists_that_are_none_are_refused)
    {
        struct disk disk = disk_of("A", 7, "");
        struct sl_msg reply, found = {.type = SL_MSG_DISK_FOUND};
        struct member other = member_of("B", 7);
        struct node *node = node_start(settings);
        tierer_come(node, 0, TIERER_PID);
        found.body.disk_found.first = true;
        found.body.disk_found.store = (struct sl_bytes){disk.name, 16};
        found.body.disk_found.members =
            (struct sl_bytes){(const void *)&other, sizeof(other) - (size_t)_i};

        fake_give(&node->fake, tierer_of(0), &found);

        ck_assert(fake_take_reply(&node->fake, tierer_of(0), found.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "DISK_FOUND.members"));
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_members");
    TCase *tests = tcase_create("members");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, lists_decide_who_begins_empty, 0, SL_COUNT(starts));
    tcase_add_loop_test(tests, power_cut_between_two_lists_costs_nothing, 0, 4);
    tcase_add_test(tests, removal_is_answered_when_the_disk_that_left_is_out_of_the_list);
    tcase_add_test(tests, removal_without_the_list_on_disk_is_in_doubt);
    tcase_add_test(tests, late_witness_is_heard);
    tcase_add_loop_test(tests, disk_that_came_first_does_not_void_the_one_that_knows_of_it, 0, 2);
    tcase_add_loop_test(tests, disk_that_comes_when_all_have_told_has_missed_something, 0, 2);
    tcase_add_loop_test(
        tests, power_cut_between_the_lists_of_a_disk_and_one_that_came_later_costs_nothing, 0, 4);
    tcase_add_test(tests, disk_whose_tierer_is_about_to_tell_is_not_struck_with_one_that_left);
    tcase_add_loop_test(tests, disk_that_was_away_when_all_was_removed_begins_empty, 0, 2);
    tcase_add_loop_test(tests, disk_that_was_alone_and_away_when_all_was_removed_begins_empty, 0,
                        2);
    tcase_add_loop_test(tests, disk_that_was_away_while_the_node_had_none_begins_empty, 0, 2);
    tcase_add_loop_test(tests, list_that_failed_and_is_there_voids_nobody, 0, 2);
    tcase_add_test(tests, a_list_that_is_there_does_not_make_a_failing_disk_well);
    tcase_add_test(tests, disk_that_joins_is_in_the_list_of_the_others);
    tcase_add_test(tests, disk_that_cannot_keep_its_list_costs_the_others_nothing);
    tcase_add_loop_test(tests, lists_that_are_none_are_refused, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
