/* tests/unit/ipc/shm/index_hostile_test.c - a damaged index is repaired or refused. */
#include "tests/unit/ipc/shm/index_support.h"

#include <fcntl.h>

#define INDEX_BYTES (4 * SL_MIB)

/* Changes one word of the index's part of the header page, as stored in the file. */
static void header_word_set(const struct bed *bed, uint32_t word, uint64_t value)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/index", bed->dir);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, &value, 8, (off_t)SL_SHM_FILE_OWN_OFFSET_BYTES + 8 * word), 8);
    close(fd);
}

/* Memory after the count of populated slabs counts as new only if it is. */
START_TEST(index_that_lost_its_slab_count_takes_new_records)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        char key[32];
        for (uint64_t i = 0; i < 60; i++) {
            snprintf(key, sizeof(key), "old%lu", (unsigned long)i);
            bed_insert(&bed, key, i);
        }
        bed_detach(&bed);
        header_word_set(&bed, 5, 0);

        ck_assert(!bed_attach(&bed));
        sl_index_recover(bed.index, NULL, NULL);
        for (uint64_t i = 0; i < 60; i++) {
            snprintf(key, sizeof(key), "new%lu", (unsigned long)i);
            bed_insert(&bed, key, i);
        }

        ck_assert_int_eq(bed_find(&bed, "new59", NULL), SL_OK);
        ck_assert_int_eq(bed_find(&bed, "old0", NULL), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("hostile");
    tcase_add_test(tcase, index_that_lost_its_slab_count_takes_new_records);
    return suite_run(tcase, "index_hostile");
}
