//! Whether a task of a Slurm step is a rank of the job that its user meant.
//!
//! Slurm tells ranks of each other by the protocol that `srun --mpi=` names. An MPI that does not speak it takes itself for a job of one, each
//! task for itself, and all of them succeed: nobody else says so.

use std::env;
use std::fs;

/// What to tell the user of a step whose tasks are jobs of their own, in its first task; none: they are not, or this is no such step.
pub fn strangers() -> Option<String> {
    told(|name| env::var(name).ok(), || fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

/// By the environment, and by what is mapped into this process.
fn told(variable: impl Fn(&str) -> Option<String>, maps: impl FnOnce() -> String) -> Option<String> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    // the environment of a batch script has no step
    let tasks = number("SLURM_STEP_NUM_TASKS").filter(|tasks| *tasks > 1)?;
    if number("SLURM_PROCID") != Some(0) {
        return None;
    }
    // an MPI's own launcher starts its servers as tasks of a step, and those start ranks
    if variable("PMIX_NAMESPACE").is_some() || variable("OMPI_COMM_WORLD_SIZE").is_some() {
        return None;
    }
    if number("PMI_SIZE").is_some() {
        // Open MPI has not spoken it since version 5; before, a component did
        let maps = maps();
        if !maps.contains("/libopen-pal.so") || maps.contains("/mca_pmix_s") {
            return None;
        }
    }
    Some(format!(
        "this task and the {} others of its Slurm step know nothing of each other, each is a job of its own: their MPI was not told. \
         MPICH wants srun --mpi=pmi2, Open MPI srun --mpi=pmix; srun --mpi=list says what this Slurm has",
        tasks - 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI: &str = "7f-80 r-xp 00000000 08:01 7 /opt/lib/libopen-pal.so.80.0.5\n";

    fn says(environment: &str, maps: &str) -> bool {
        let variable = |name: &str| {
            let set =
                environment.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            set.map(str::to_owned)
        };
        told(variable, || maps.into()).is_some()
    }

    #[test]
    fn tasks_that_are_jobs_of_their_own_are_told_of_once() {
        let step = "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0";
        assert!(says(step, OPEN_MPI) && says(step, ""));
        assert!(!says("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", OPEN_MPI));
        // what Slurm's own plugins set
        assert!(says(&format!("{step} PMI_RANK=0 PMI_SIZE=4 PMI_FD=13"), OPEN_MPI));
        assert!(!says(&format!("{step} PMI_RANK=0 PMI_SIZE=4 PMI_FD=13"), ""));
        assert!(!says(&format!("{step} PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.3.0"), OPEN_MPI));
        let component = "7f-80 r-xp 00000000 08:01 7 /usr/lib/openmpi/lib/openmpi3/mca_pmix_s2.so\n";
        assert!(!says(&format!("{step} PMI_SIZE=4"), &format!("{OPEN_MPI}{component}")));
    }

    #[test]
    fn other_processes_hear_nothing() {
        for environment in [
            "",
            "SLURM_PROCID=0 SLURM_NTASKS=4",
            "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
            "SLURM_STEP_NUM_TASKS=x SLURM_PROCID=0",
            "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=8",
            "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 PMI_SIZE=8",
        ] {
            assert!(!says(environment, ""), "{environment}");
        }
    }
}
