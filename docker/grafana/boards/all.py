from boards import compute, fleet, rollout, storage, temporal

DASHBOARDS = (fleet.BOARD, compute.BOARD, storage.BOARD, rollout.BOARD, temporal.BOARD)
