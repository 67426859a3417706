"""Many instances by several methods: instance lists enter, one record per run leaves."""
