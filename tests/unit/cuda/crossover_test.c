/* tests/unit/cuda/crossover_test.c - the choice of a way to copy, and files with any contents. */
#include "cuda/sl_crossover.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALL                    \
    {                          \
        true, true, true, true \
    }

/* pieces of `piece` bytes; values with runs of `run` bytes on the host */
#define JOB(piece, count, run)                                         \
    {                                                                  \
        .piece_bytes = (piece), .pieces = (count), .run_bytes = (run), \
        .runs = (piece) * (count) / (run),                             \
    }

static const struct {
    struct sl_crossover_job job;
    bool possible[SL_WAY_COUNT];
    enum sl_way want;
} published[] = {
    {JOB(4096, 10000, 81920), .possible = ALL, SL_WAY_STAGED},
    {JOB(4096, 10000, 65536), .possible = ALL, SL_WAY_STAGED},
    /* One entry a value: those small on the host as well are not worth a batch, staged or not. */
    {JOB(4096, 10000, 65535), .possible = ALL, SL_WAY_MAPPED},
    {JOB(4096, 10000, 4096), .possible = ALL, SL_WAY_MAPPED},
    {JOB(16384, 1000, 16384), .possible = ALL, SL_WAY_MAPPED},
    {JOB(4096, 10000, 16384), .possible = {true, true, true, false}, SL_WAY_STAGED},
    {JOB(4096, 10000, 4096), .possible = {true, true, true, false}, SL_WAY_BATCH},
    {JOB(4096, 10000, 81920), .possible = {true, true, false, true}, SL_WAY_MAPPED},
    {JOB(4096, 10000, 81920), .possible = {true, true, false, false}, SL_WAY_BATCH},
    {JOB(4096, 8, 4096), .possible = ALL, SL_WAY_BATCH},
    {JOB(4096, 1, 4096), .possible = ALL, SL_WAY_COPIES},
    {JOB(28672, 1000, 28672), .possible = ALL, SL_WAY_MAPPED},
    {JOB(65536, 10000, 65536), .possible = ALL, SL_WAY_BATCH},
    /* Large values of pieces that are not: some large copies, as long as there are few pieces. */
    {JOB(65536, 9999, 20 * 65536), .possible = ALL, SL_WAY_STAGED},
    {JOB(65536, 9999, 20 * 65536), .possible = {true, true, false, true}, SL_WAY_BATCH},
    {JOB(65536, 9999, 65536), .possible = ALL, SL_WAY_BATCH},
    {JOB(65536, 10000, 20 * 65536), .possible = ALL, SL_WAY_BATCH},
    {JOB(131072, 1000, 20 * 131072), .possible = ALL, SL_WAY_BATCH},
    {JOB(65536, 10000, 65536), .possible = {true, false, true, true}, SL_WAY_COPIES},
    {JOB(SL_MIB, 10000, SL_MIB), .possible = ALL, SL_WAY_COPIES},
    {JOB(SL_MIB, 2, SL_MIB), .possible = {false, false, true, true}, SL_WAY_STAGED},
};

START_TEST(without_figures_published_ones_decide)
    {
        struct sl_crossover crossover = {.measured = false};
        for (int to_host = 0; to_host < 2; to_host++) {
            struct sl_crossover_job job = published[_i].job;
            job.to_host = to_host;
            memcpy(job.possible, published[_i].possible, sizeof(job.possible));
            ck_assert_str_eq(sl_way_name(sl_crossover_choose(&crossover, &job)),
                             sl_way_name(published[_i].want));
        }
    }
END_TEST

static struct sl_crossover figures(void)
{
    struct sl_crossover crossover = {.machine = "fafa-13000", .measured = true};
    uint32_t *speed = &crossover.speed[0][0][0][0][0];
    for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
        speed[i] = 1 + i;
    }
    return crossover;
}

START_TEST(the_fastest_possible_way_of_its_figure_is_taken)
    {
        struct sl_crossover crossover = figures();
        struct sl_crossover_job job = {.to_host = true,
                                       .piece_bytes = 20000,
                                       .pieces = 300,
                                       .run_bytes = 20000,
                                       .runs = 300,
                                       .possible = ALL};
        uint32_t *speed = &crossover.speed[0][0][0][0][0];
        for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
            speed[i] = 1000 * (1 + i % SL_WAY_COUNT);
        }
        speed = crossover.speed[0][1][2][1]; /* 16 KiB, 256 pieces */
        speed[SL_WAY_BATCH] = 5000;

        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_BATCH);
        job.possible[SL_WAY_BATCH] = false;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
        job.possible[SL_WAY_BATCH] = true;
        job.piece_bytes = job.run_bytes = 28672; /* not 32 KiB yet: as 16 */
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_BATCH);
        job.piece_bytes = job.run_bytes = 32768;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
        job.piece_bytes = job.run_bytes = 20000;
        job.pieces = job.runs = 60; /* nearer to 16 */
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
        job.pieces = job.runs = UINT64_MAX; /* beyond the figures the last one holds */
        job.piece_bytes = job.run_bytes = UINT64_MAX;
        crossover.speed[0][1][8][2][SL_WAY_COPIES] = 5000;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_COPIES);
    }
END_TEST

/* A copy, a batch and the mapped kernel work by pieces, staging by runs on the host: the figures
 * for the right entry size count. */
START_TEST(each_way_is_looked_up_by_what_one_entry_of_it_covers)
    {
        struct sl_crossover crossover = {.machine = "fafa-13000-sm8", .measured = true};
        struct sl_crossover_job job = {.piece_bytes = 4096, .pieces = 5120, .possible = ALL};
        for (uint32_t size = 0; size < SL_CROSSOVER_SIZES; size++) {
            for (uint32_t count = 0; count < SL_CROSSOVER_COUNTS; count++) {
                uint32_t *speed = crossover.speed[0][0][size][count];
                bool large = sl_crossover_piece_bytes(size) >= 65536;
                speed[SL_WAY_COPIES] = large ? 20000 : 1500;
                speed[SL_WAY_BATCH] = large ? 45000 : 5000;
                speed[SL_WAY_STAGED] = large ? 44000 : 4800;
                speed[SL_WAY_MAPPED] = 30000;
            }
        }

        job.run_bytes = 80 * 4096; /* values of 80 layers */
        job.runs = 64;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_STAGED);
        job.run_bytes = 4096; /* the same pieces, layer by layer */
        job.runs = 5120;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
        crossover.speed[0][0][6][0][SL_WAY_STAGED] = 25000; /* 256 KiB; so few of them count less */
        job.run_bytes = 80 * 4096;
        job.runs = 16;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
    }
END_TEST

/* The start of a batch is hidden by the previous job, and counts if there was none. */
START_TEST(a_job_that_follows_another_has_figures_of_its_own)
    {
        struct sl_crossover crossover = {.machine = "fafa-13000-sm8", .measured = true};
        struct sl_crossover_job job = {
            .piece_bytes = 65536, .pieces = 256, .run_bytes = 65536, .runs = 256, .possible = ALL};
        crossover.speed[0][0][4][1][SL_WAY_BATCH] = 29000;
        crossover.speed[0][0][4][1][SL_WAY_MAPPED] = 46000;
        crossover.speed[1][0][4][1][SL_WAY_BATCH] = 53000;
        crossover.speed[1][0][4][1][SL_WAY_MAPPED] = 46000;

        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
        job.follows = true;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_BATCH);
    }
END_TEST

/* Multiprocessors are the engine's: a way without a kernel wins if it is at most 3 % slower. */
START_TEST(of_ways_that_are_nearly_as_fast_one_without_a_kernel_is_taken)
    {
        struct sl_crossover crossover = {.machine = "fafa-13000-sm8", .measured = true};
        struct sl_crossover_job job = {
            .piece_bytes = 65536, .pieces = 256, .run_bytes = 65536, .runs = 256, .possible = ALL};
        uint32_t *speed = crossover.speed[0][0][4][1];
        speed[SL_WAY_COPIES] = 9800;
        speed[SL_WAY_BATCH] = 9700;
        speed[SL_WAY_STAGED] = 10000;

        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_COPIES);
        speed[SL_WAY_COPIES] = 9600;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_BATCH);
        speed[SL_WAY_BATCH] = 9699;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_STAGED);
    }
END_TEST

START_TEST(beside_others_that_compute_no_kernel_is_taken)
    {
        struct sl_crossover crossover = {.measured = _i == 1};
        struct sl_crossover_job job = {.computes = true,
                                       .piece_bytes = 4096,
                                       .pieces = 5120,
                                       .run_bytes = 4096,
                                       .runs = 5120,
                                       .possible = ALL};
        crossover.speed[0][0][0][2][SL_WAY_BATCH] = 5000;
        crossover.speed[0][0][0][2][SL_WAY_MAPPED] = 30000;

        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_BATCH);

        job.possible[SL_WAY_BATCH] = false;
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_COPIES);
        job.possible[SL_WAY_COPIES] = false; /* no other way is possible */
        ck_assert_int_eq(sl_crossover_choose(&crossover, &job), SL_WAY_MAPPED);
    }
END_TEST

struct place {
    struct sl_tmpdir directory;
    char path[128];
};

static void place_make(struct place *place, const struct sl_crossover *crossover)
{
    sl_tmpdir_make(&place->directory, "/dev/shm");
    sl_tmpdir_at(&place->directory, "crossover-fafa-13000", place->path, sizeof(place->path));
    ck_assert_int_eq(sl_crossover_save(place->directory.path, crossover, NULL), SL_OK);
}

static sl_err place_load(const struct place *place, struct sl_error *why)
{
    struct sl_crossover got = {.machine = "fafa-13000"};
    struct sl_crossover before = got;
    sl_err err = sl_crossover_load(place->directory.path, &got, why);
    if (err != SL_OK) {
        ck_assert_int_eq(memcmp(&got, &before, sizeof(got)), 0);
    }
    return err;
}

START_TEST(what_was_saved_is_loaded)
    {
        struct sl_crossover crossover = figures(), got = {.machine = "fafa-13000"};
        struct sl_error why = {0};
        struct stat status;
        struct place place;
        place_make(&place, &crossover);

        ck_assert_int_eq(sl_crossover_load(place.directory.path, &got, &why), SL_OK);

        ck_assert_int_eq(memcmp(&got, &crossover, sizeof(got)), 0);
        ck_assert_int_eq(stat(place.path, &status), 0);
        ck_assert_uint_eq(status.st_mode & 0777, 0600);
        crossover.speed[0][0][0][0][0] = 77; /* and switched in one step */
        ck_assert_int_eq(sl_crossover_save(place.directory.path, &crossover, &why), SL_OK);
        ck_assert_int_eq(sl_crossover_load(place.directory.path, &got, &why), SL_OK);
        ck_assert_uint_eq(got.speed[0][0][0][0][0], 77);
        sl_tmpdir_remove(&place.directory);
    }
END_TEST

static size_t text_of(const struct place *place, char *text, size_t room)
{
    FILE *file = fopen(place->path, "r");
    ck_assert_ptr_nonnull(file);
    size_t length = fread(text, 1, room, file);
    (void)fclose(file);
    return length;
}

START_TEST(every_part_of_a_file_alone_is_refused)
    {
        static char text[32768];
        struct sl_crossover crossover = figures();
        struct place place;
        place_make(&place, &crossover);
        size_t length = text_of(&place, text, sizeof(text));
        for (size_t part = 0; part < length; part += part + 4 < length ? 29 : 1) {
            sl_tmpdir_write(place.path, text, part);
            sl_err err = place_load(&place, NULL);
            ck_assert_msg(err == SL_ERR_CORRUPT || err == SL_ERR_FOREIGN, "%zu bytes: %d", part,
                          err);
        }
        sl_tmpdir_remove(&place.directory);
    }
END_TEST

static const struct {
    const char *from, *to; /* a replacement in the file */
    sl_err want;
    const char *says;
} hostile[] = {
    {"crossover 3", "crossover 2", SL_ERR_CORRUPT,
     "line 1"}, /* from an older version: measured again */
    {"crossover 3", "crossover 4", SL_ERR_CORRUPT, "line 1"},
    {"fafa-13000", "fafa-12080", SL_ERR_FOREIGN, "line 2"},
    {"in 4096 16 1 2 3 4", "in 4096 16 1 2 3", SL_ERR_CORRUPT, "line 3"},
    {"in 4096 16 1 2 3 4", "in 4096 16 1 2 3 4 5", SL_ERR_CORRUPT, "line 3"},
    {"in 4096 16 1 2 3 4", "in 4096 16 1 -2 3 4", SL_ERR_CORRUPT, "line 3"},
    {"in 4096 16 1 2 3 4", "in 4096 16 1 4294967296 3 4", SL_ERR_CORRUPT, "line 3"},
    {"in 4096 16 1 2 3 4", "in 4096 16 0 0 0 0", SL_ERR_CORRUPT, "line 3"},
    {"in 4096 256 5", "in 4096 16 5", SL_ERR_CORRUPT, "line 4"},
    {"in 4096 256 5 6 7 8\n", "", SL_ERR_CORRUPT, "line 4"},
    {"end\n", "end\nend\n", SL_ERR_CORRUPT, "line 111"},
};

START_TEST(a_file_that_says_something_else_is_refused)
    {
        static char text[32768], changed[33000];
        struct sl_crossover crossover = figures();
        struct sl_error why = {0};
        struct place place;
        place_make(&place, &crossover);
        text[text_of(&place, text, sizeof(text) - 1)] = 0;
        char *at = strstr(text, hostile[_i].from);
        ck_assert_ptr_nonnull(at);
        int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text,
                              hostile[_i].to, at + strlen(hostile[_i].from));
        sl_tmpdir_write(place.path, changed, (size_t)length);

        ck_assert_int_eq(place_load(&place, &why), hostile[_i].want);

        ck_assert_msg(strstr(why.text, hostile[_i].says) != NULL, "%s", why.text);
        sl_tmpdir_remove(&place.directory);
    }
END_TEST

START_TEST(a_file_of_others_is_refused)
    {
        struct sl_crossover crossover = figures();
        struct sl_error why = {0};
        char other[160];
        struct place place;
        place_make(&place, &crossover);
        ck_assert_int_eq(chmod(place.path, 0602), 0);
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_CONFIG);
        ck_assert_int_eq(chmod(place.path, 0600), 0);
        snprintf(other, sizeof(other), "%s.other", place.path);
        ck_assert_int_eq(rename(place.path, other), 0);
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(mkfifo(place.path, 0600), 0);
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_CONFIG);
        ck_assert_int_eq(unlink(place.path), 0);
        ck_assert_int_eq(mkdir(place.path, 0700), 0);
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_CONFIG);
        sl_tmpdir_remove(&place.directory);
    }
END_TEST

START_TEST(a_file_that_is_too_long_is_refused)
    {
        static char text[40000];
        struct sl_crossover crossover = figures();
        struct sl_error why = {0};
        struct place place;
        place_make(&place, &crossover);
        memset(text, '1', sizeof(text));
        sl_tmpdir_write(place.path, text, sizeof(text));
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_CONFIG);
        sl_tmpdir_write(place.path, "sluice\0crossover", 16);
        ck_assert_int_eq(place_load(&place, &why), SL_ERR_CORRUPT);
        snprintf(crossover.machine, sizeof(crossover.machine), "../x");
        ck_assert_int_eq(sl_crossover_save(place.directory.path, &crossover, &why), SL_ERR_INVALID);
        sl_tmpdir_remove(&place.directory);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("crossover");
    TCase *cases = tcase_create("crossover");
    tcase_add_loop_test(cases, without_figures_published_ones_decide, 0, SL_COUNT(published));
    tcase_add_test(cases, the_fastest_possible_way_of_its_figure_is_taken);
    tcase_add_test(cases, each_way_is_looked_up_by_what_one_entry_of_it_covers);
    tcase_add_test(cases, a_job_that_follows_another_has_figures_of_its_own);
    tcase_add_test(cases, of_ways_that_are_nearly_as_fast_one_without_a_kernel_is_taken);
    tcase_add_loop_test(cases, beside_others_that_compute_no_kernel_is_taken, 0, 2);
    tcase_add_test(cases, what_was_saved_is_loaded);
    tcase_add_test(cases, every_part_of_a_file_alone_is_refused);
    tcase_add_loop_test(cases, a_file_that_says_something_else_is_refused, 0, SL_COUNT(hostile));
    tcase_add_test(cases, a_file_of_others_is_refused);
    tcase_add_test(cases, a_file_that_is_too_long_is_refused);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
