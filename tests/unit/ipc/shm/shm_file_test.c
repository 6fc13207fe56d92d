/* tests/unit/ipc/shm/shm_file_test.c - shm files are complete once they have a name, and files that
 * do not match are refused. */
#include "ipc/shm/sl_shm_file.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <fcntl.h>
#include <sys/stat.h>

#define DATA_BYTES (256 * SL_KIB)

static const struct sl_shm_file_want standard = {
    .name = "seg", .kind = SL_SHM_FILE_INDEX, .data_bytes = DATA_BYTES, .data_align_bytes = 4096};

static struct sl_shm_file_want want_in(const char *directory)
{
    struct sl_shm_file_want want = standard;
    want.directory = directory;
    return want;
}

static char *dir_with_segment(void)
{
    char *dir = shm_dir_make();
    struct sl_shm_file segment;
    struct sl_error why = {0};
    struct sl_shm_file_want want = want_in(dir);
    ck_assert_sl_ok(sl_shm_file_create(&want, &segment, &why), why);
    sl_shm_file_close(&segment);
    return dir;
}

START_TEST(what_one_writes_another_reads)
    {
        char *dir = shm_dir_make();
        struct sl_shm_file writer;
        struct sl_shm_file reader;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        ck_assert_sl_ok(sl_shm_file_create(&want, &writer, &why), why);
        ck_assert_sl_ok(sl_shm_file_populate(&writer, 0, DATA_BYTES, &why), why);
        writer.data[DATA_BYTES - 1] = 42;

        ck_assert_sl_ok(sl_shm_file_open(&want, false, &reader, &why), why);

        ck_assert_uint_eq(reader.data[DATA_BYTES - 1], 42);
        ck_assert_uint_eq(reader.data_bytes, DATA_BYTES);
        sl_shm_file_close(&reader);
        sl_shm_file_close(&writer);
        sl_shm_file_close(&writer); /* a closed one too */
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(mapped_file_is_told_from_its_successor)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file mapped, successor;
        struct sl_shm_file_want want = want_in(dir);
        ck_assert_int_eq(sl_shm_file_open(&want, false, &mapped, NULL), SL_OK);
        ck_assert_int_eq(sl_shm_file_current(&mapped, dir, want.name), SL_OK);
        ck_assert(sl_shm_file_linked(&mapped));
        ck_assert_int_eq(sl_shm_file_followed(&mapped, dir, want.name), SL_OK);
        ck_assert_uint_ne(mapped.named_ns, 0);

        ck_assert_int_eq(sl_shm_file_remove(dir, want.name, NULL), SL_OK);
        ck_assert_int_eq(sl_shm_file_current(&mapped, dir, want.name), SL_ERR_NOT_FOUND);
        ck_assert(!sl_shm_file_linked(&mapped));
        ck_assert_int_eq(sl_shm_file_followed(&mapped, dir, want.name), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_shm_file_create(&want, &successor, NULL), SL_OK);

        ck_assert_int_eq(sl_shm_file_current(&mapped, dir, want.name), SL_ERR_STALE);
        ck_assert_int_eq(sl_shm_file_current(&successor, dir, want.name), SL_OK);
        ck_assert(sl_shm_file_linked(&successor) && !sl_shm_file_linked(&mapped));
        ck_assert_int_eq(sl_shm_file_followed(&mapped, dir, want.name), SL_ERR_STALE);
        ck_assert_int_eq(sl_shm_file_followed(&successor, dir, want.name), SL_OK);
        sl_shm_file_close(&successor);
        sl_shm_file_close(&mapped);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(new_segment_is_sparse_and_private)
    {
        char *dir = dir_with_segment();
        char path[128];
        struct stat file;
        snprintf(path, sizeof(path), "%s/seg", dir);

        ck_assert_int_eq(stat(path, &file), 0);

        ck_assert_uint_eq(file.st_mode & 0777, 0600);
        ck_assert_int_le(file.st_blocks * 512, 4096);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(data_of_huge_alignment_starts_on_a_huge_page)
    {
        char *dir = shm_dir_make();
        struct sl_shm_file segment;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        want.data_align_bytes = 2 * SL_MIB;

        ck_assert_sl_ok(sl_shm_file_create(&want, &segment, &why), why);

        ck_assert_uint_eq((uintptr_t)segment.data % (2 * SL_MIB), 0);
        sl_shm_file_close(&segment);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(name_that_exists_is_not_replaced)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);

        ck_assert_int_eq(sl_shm_file_create(&want, &segment, NULL), SL_ERR_EXISTS);

        shm_dir_remove(dir);
    }
END_TEST

static sl_err prepare_fails(struct sl_shm_file *segment, struct sl_error *why)
{
    (void)segment;
    return sl_fail(why, SL_ERR_NO_SPACE, "as told");
}

START_TEST(segment_that_cannot_be_prepared_gets_no_name)
    {
        char *dir = shm_dir_make();
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);
        want.prepare = prepare_fails;

        ck_assert_int_eq(sl_shm_file_create(&want, &segment, NULL), SL_ERR_NO_SPACE);

        want.prepare = NULL;
        ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, NULL), SL_ERR_NOT_FOUND);
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    const char *what;
    off_t at;
    uint64_t value;
    unsigned bytes;
    sl_err expected;
} tampered[] = {
    {"magic", 0, 1, 8, SL_ERR_FOREIGN},
    {"format", 8, SL_SHM_FILE_FORMAT + 1, 4, SL_ERR_VERSION},
    {"layout", 20, 4711, 4, SL_ERR_VERSION},
    {"kind", 12, SL_SHM_FILE_PINS, 4, SL_ERR_FOREIGN},
    {"boot id", 40, 0x3030303030303030, 8, SL_ERR_FOREIGN},
    {"data offset zero", 24, 0, 8, SL_ERR_CORRUPT},
    {"data offset odd", 24, 4097, 8, SL_ERR_CORRUPT},
    {"data offset past the file", 24, UINT64_MAX - 4095, 8, SL_ERR_CORRUPT},
    {"data size", 32, DATA_BYTES + 4096, 8, SL_ERR_CORRUPT},
    {"data size zero", 32, 0, 8, SL_ERR_CORRUPT},
    {"data size over all", 32, UINT64_MAX, 8, SL_ERR_CORRUPT},
};

START_TEST(header_that_does_not_match_is_refused)
    {
        char *dir = dir_with_segment();
        char path[128];
        struct sl_shm_file segment;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        snprintf(path, sizeof(path), "%s/seg", dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &tampered[_i].value, tampered[_i].bytes, tampered[_i].at),
                         tampered[_i].bytes);
        close(fd);

        sl_err got = sl_shm_file_open(&want, false, &segment, &why);

        ck_assert_msg(got == tampered[_i].expected, "%s: %s, %s", tampered[_i].what,
                      sl_err_name(got), why.text);
        ck_assert_uint_gt(strlen(why.text), 0);
        shm_dir_remove(dir);
    }
END_TEST

static void layout_forge(const char *dir, uint32_t layout)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/seg", dir);
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, &layout, sizeof(layout), 20), sizeof(layout));
    close(fd);
}

START_TEST(another_layout_is_refused_by_both_numbers_and_a_way_out)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        layout_forge(dir, 4711);

        ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, &why), SL_ERR_VERSION);

        ck_assert_msg(strstr(why.text, "'seg' has layout 4711 (sluice " SL_VERSION ")") != NULL,
                      "%s", why.text);
        ck_assert_msg(strstr(why.text, "this program (sluice " SL_VERSION ") knows 1") != NULL,
                      "%s", why.text);
        ck_assert_msg(strstr(why.text, "sluice-node stop") != NULL, "%s", why.text);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(what_another_version_made_is_seen_and_never_replaced)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_shm_file_found found;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        ck_assert_int_eq(sl_shm_file_look(dir, "seg", &found, &why), SL_OK);
        ck_assert_int_eq(found.kind, SL_SHM_FILE_INDEX);
        ck_assert_uint_eq(found.layout, sl_shm_file_layouts(SL_SHM_FILE_INDEX).newest);
        ck_assert_str_eq(found.maker, SL_VERSION);
        layout_forge(dir, 4711);

        ck_assert_int_eq(sl_shm_file_look(dir, "seg", &found, &why), SL_ERR_VERSION);
        ck_assert_uint_eq(found.layout, 4711);
        ck_assert_int_eq(sl_shm_file_open_or_renew(&want, &segment, &why), SL_ERR_VERSION);

        ck_assert_int_eq(sl_shm_file_look(dir, "seg", &found, &why), SL_ERR_VERSION);
        ck_assert_uint_eq(found.layout, 4711);
        ck_assert_int_eq(sl_shm_file_look(dir, "none", &found, &why), SL_ERR_NOT_FOUND);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(a_node_can_be_gone_on_with_when_each_of_its_segments_can_be_read)
    {
        static const char *const of_the_node[] = {"arena.0", "index", "leases", "settled",
                                                  "changes"};
        char *dir = dir_with_segment();
        char from[128], to[128];
        struct sl_error why = {0};
        layout_forge(dir, 4711);
        ck_assert_int_eq(sl_shm_files_readable(dir, &why), SL_OK); /* not a node's file */
        snprintf(from, sizeof(from), "%s/seg", dir);
        for (size_t i = 0; i < SL_COUNT(of_the_node); i++) {
            snprintf(to, sizeof(to), "%s/%s", dir, of_the_node[i]);
            ck_assert_int_eq(rename(from, to), 0);

            ck_assert_int_eq(sl_shm_files_readable(dir, &why), SL_ERR_VERSION);

            ck_assert_msg(strstr(why.text, of_the_node[i]) != NULL, "%s", why.text);
            ck_assert_int_eq(rename(to, from), 0);
        }
        shm_dir_remove(dir);
        ck_assert_int_eq(sl_shm_files_readable("/nowhere", &why), SL_OK); /* it does not exist */
        ck_assert_int_eq(sl_shm_files_readable("/dev/null", &why), SL_ERR_OS);
        ck_assert_msg(strstr(why.text, "look into '/dev/null'") != NULL, "%s", why.text);
    }
END_TEST

/* Shm files had no layout number before; they count as number 1. */
START_TEST(a_segment_without_a_number_has_the_first_layout)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        layout_forge(dir, 0);

        ck_assert_sl_ok(sl_shm_file_open(&want, false, &segment, &why), why);

        sl_shm_file_close(&segment);
        shm_dir_remove(dir);
    }
END_TEST

static const off_t lengths[] = {
    0, 79, 4095, 4096, 4096 + (off_t)DATA_BYTES - 1, 8192 + (off_t)DATA_BYTES};

START_TEST(file_of_another_length_is_corrupt)
    {
        char *dir = dir_with_segment();
        char path[128];
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);
        snprintf(path, sizeof(path), "%s/seg", dir);
        ck_assert_int_eq(truncate(path, lengths[_i]), 0);

        ck_assert_int_eq(sl_shm_file_open(&want, true, &segment, NULL), SL_ERR_CORRUPT);

        shm_dir_remove(dir);
    }
END_TEST

START_TEST(other_size_than_expected_is_corrupt)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);
        want.data_bytes = DATA_BYTES / 2;

        ck_assert_int_eq(sl_shm_file_open(&want, true, &segment, NULL), SL_ERR_CORRUPT);

        shm_dir_remove(dir);
    }
END_TEST

START_TEST(links_fifos_and_open_modes_are_foreign)
    {
        char *dir = dir_with_segment();
        char path[128];
        char other[128];
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);
        snprintf(path, sizeof(path), "%s/seg", dir);
        snprintf(other, sizeof(other), "%s/other", dir);

        ck_assert_int_eq(symlink("seg", other), 0);
        want.name = "other";
        ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, NULL), SL_ERR_FOREIGN);
        ck_assert_int_eq(unlink(other), 0);
        ck_assert_int_eq(mkfifo(other, 0600), 0);
        ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, NULL), SL_ERR_FOREIGN);
        ck_assert_int_eq(chmod(path, 0640), 0);
        want.name = "seg";
        ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, NULL), SL_ERR_FOREIGN);
        ck_assert_int_eq(chmod(path, 0600), 0);
        if (chown(path, 4711, 4711) == 0) { /* else not root: it cannot be another's */
            ck_assert_int_eq(sl_shm_file_open(&want, false, &segment, NULL), SL_ERR_FOREIGN);
        }
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    const char *name;
    uint64_t data_bytes, align_bytes;
} bad_wants[] = {
    {"", 4096, 4096},     {"a/b", 4096, 4096},        {"seg2", 0, 4096},
    {"seg2", 4096, 4095}, {"seg2", 4096, 4 * SL_MIB}, {"seg2", UINT64_MAX, 4096},
};

START_TEST(wants_out_of_range_are_invalid)
    {
        char *dir = shm_dir_make();
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);
        want.name = bad_wants[_i].name;
        want.data_bytes = bad_wants[_i].data_bytes;
        want.data_align_bytes = bad_wants[_i].align_bytes;

        ck_assert_int_eq(sl_shm_file_create(&want, &segment, NULL), SL_ERR_INVALID);

        shm_dir_remove(dir);
    }
END_TEST

START_TEST(populating_a_full_file_system_is_an_error_and_no_signal)
    {
        char *dir = shm_dir_make();
        struct sl_shm_file segment;
        struct sl_error why = {0};
        struct sl_shm_file_want want = want_in(dir);
        want.data_bytes = 8 * SL_MIB;
        if (!shm_dir_limit(dir, "1m")) {
            printf("skipped: no tmpfs can be mounted here\n");
            shm_dir_remove(dir);
            return;
        }
        ck_assert_sl_ok(sl_shm_file_create(&want, &segment, &why), why);
        ck_assert_sl_ok(sl_shm_file_populate(&segment, 0, 512 * SL_KIB, &why), why);

        ck_assert_int_eq(sl_shm_file_populate(&segment, 512 * SL_KIB, 7 * SL_MIB, &why),
                         SL_ERR_NO_SPACE);

        sl_shm_file_unpopulate(&segment, 512 * SL_KIB,
                               7 * SL_MIB); /* released space is available again */
        ck_assert_sl_ok(sl_shm_file_populate(&segment, 4 * SL_MIB, 256 * SL_KIB, &why), why);
        ck_assert_int_eq(sl_shm_file_populate(&segment, 8 * SL_MIB - 1, 2, NULL), SL_ERR_INVALID);
        sl_shm_file_close(&segment);
        umount(dir);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(removed_segment_is_not_found)
    {
        char *dir = dir_with_segment();
        struct sl_shm_file segment;
        struct sl_shm_file_want want = want_in(dir);

        ck_assert_int_eq(sl_shm_file_remove(dir, "seg", NULL), SL_OK);

        ck_assert_int_eq(sl_shm_file_remove(dir, "seg", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_shm_file_open(&want, true, &segment, NULL), SL_ERR_NOT_FOUND);
        shm_dir_remove(dir);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("segment");
    tcase_add_test(tcase, what_one_writes_another_reads);
    tcase_add_test(tcase, mapped_file_is_told_from_its_successor);
    tcase_add_test(tcase, new_segment_is_sparse_and_private);
    tcase_add_test(tcase, data_of_huge_alignment_starts_on_a_huge_page);
    tcase_add_test(tcase, name_that_exists_is_not_replaced);
    tcase_add_test(tcase, segment_that_cannot_be_prepared_gets_no_name);
    tcase_add_test(tcase, another_layout_is_refused_by_both_numbers_and_a_way_out);
    tcase_add_test(tcase, what_another_version_made_is_seen_and_never_replaced);
    tcase_add_test(tcase, a_node_can_be_gone_on_with_when_each_of_its_segments_can_be_read);
    tcase_add_test(tcase, a_segment_without_a_number_has_the_first_layout);
    tcase_add_loop_test(tcase, header_that_does_not_match_is_refused, 0, SL_COUNT(tampered));
    tcase_add_loop_test(tcase, file_of_another_length_is_corrupt, 0, SL_COUNT(lengths));
    tcase_add_test(tcase, other_size_than_expected_is_corrupt);
    tcase_add_test(tcase, links_fifos_and_open_modes_are_foreign);
    tcase_add_loop_test(tcase, wants_out_of_range_are_invalid, 0, SL_COUNT(bad_wants));
    tcase_add_test(tcase, populating_a_full_file_system_is_an_error_and_no_signal);
    tcase_add_test(tcase, removed_segment_is_not_found);
    return suite_run(tcase, "segment");
}
